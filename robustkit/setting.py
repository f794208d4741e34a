"""All that one evaluation needs, resolved and checked before any work begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from robustkit.classifier import Classifier
from robustkit.data import Dataset, from_tensors, load_dataset, pick
from robustkit.environment import chosen_device
from robustkit.errors import UserError
from robustkit.models import load_model
from robustkit.plan import Plan, plan, threats_of
from robustkit.watch import Watch

Model = str | nn.Module | Classifier


@dataclass(frozen=True)
class Numerics:
    """How the search network is run; verdicts are fp32 and unfolded whatever stands here."""

    fold: bool = True
    channels_last: bool | None = None
    compile: bool = False
    bf16: bool = False


@dataclass(frozen=True)
class Setting:
    """All that one evaluation needs, resolved and checked: what `evaluate` runs and `--dry-run` prints."""

    classifiers: tuple[Classifier, ...]
    sources: tuple[str, ...]
    data: Dataset
    ids: tuple[int, ...]
    plan: Plan
    seed: int
    slots: int | None
    device: torch.device
    numerics: Numerics


def resolved(
    models: Model | Sequence[Model],
    *,
    dataset: str | Dataset | tuple[Tensor, Tensor],
    attacks: str | Sequence[str],
    norm: str | Sequence[str],
    eps: float | str | Sequence[float | str],
    samples: int | None,
    batch_size: int | Literal["auto"],
    device: str,
    seed: int,
    weights: str | Path | Sequence[str | Path] | None,
    num_classes: int | None,
    mean: Sequence[float] | None,
    std: Sequence[float] | None,
    numerics: Numerics,
    watch: Watch,
    train: bool = False,
    retrain: bool = False,
) -> Setting:
    """The setting of an evaluation: data and models loaded, everything checked that can be before work begins."""
    data = _data(dataset)
    if samples is not None and samples < 1:
        raise UserError(f"The number of samples must be at least 1, not {samples}.")
    if not len(data):
        raise UserError(f"The data set {data.name} is empty; there is nothing to evaluate.")
    if batch_size != "auto" and batch_size < 1:
        raise UserError(f"The batch size must be at least 1 or auto, not {batch_size}.")
    chosen = chosen_device(device)
    radii = [str(value) for value in _listed(eps)]
    planned = plan(_listed(attacks), threats_of(_listed(norm), radii, data.threats))
    named = _listed(models)
    files = _listed(weights) if weights is not None else []
    if len(files) not in (0, len(named)):
        raise UserError(f"There are {len(named)} models but {len(files)} weights; give one weights entry per model.")
    loaded = []
    for number, entry in enumerate(named):
        if isinstance(entry, str):
            entry = load_model(  # noqa: PLW2901
                entry, dataset=data, weights=files[number] if files else None, num_classes=num_classes, mean=mean,
                std=std, train=train, retrain=retrain, report=_reporter(watch),
            )  # fmt: skip
        loaded.append(_classifier(entry, numerics, chosen))
    ids = tuple(pick(len(data), samples))
    sources = tuple(str(getattr(each.model, "source", "given by the caller")) for each in loaded)
    return Setting(
        tuple(_uniquely_named(loaded)), sources,
        data, ids, planned, seed, None if batch_size == "auto" else batch_size, chosen, numerics,
    )  # fmt: skip


def _data(dataset: str | Dataset | tuple[Tensor, Tensor]) -> Dataset:
    if isinstance(dataset, str):
        return load_dataset(dataset)
    return from_tensors(*dataset) if isinstance(dataset, tuple) else dataset


def _classifier(entry: nn.Module | Classifier, numerics: Numerics, device: torch.device) -> Classifier:
    if isinstance(entry, Classifier):
        return entry
    return Classifier(entry.to(device) if device.type != "cpu" else entry, **vars(numerics))


def _uniquely_named(classifiers: Sequence[Classifier]) -> Sequence[Classifier]:
    names: list[str] = []
    for classifier in classifiers:
        base, count = classifier.name, 2
        while classifier.name in names:
            classifier.name = f"{base}-{count}"
            count += 1
        names.append(classifier.name)
    return classifiers


def _reporter(watch: Watch) -> Callable[[str, float | None], None]:
    def report(text: str, share: float | None) -> None:
        if share is None:
            watch.say(text)
        else:
            watch.training(text, share)

    return report


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
