"""All that one evaluation needs, resolved and checked before any work begins."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothed import check_askable
from robustkit.classifier.smoothing import Smoothing
from robustkit.classifier.surrogate_gradients import StandIn
from robustkit.data import Dataset, from_tensors, load_dataset, pick
from robustkit.errors import UserError
from robustkit.evaluation.plan import Plan, plan, threats_of
from robustkit.host.environment import chosen_device
from robustkit.host.progress import ProgressWatch
from robustkit.models import load_model
from robustkit.primitives import registry
from robustkit.primitives.protocol import Attack

Model = str | nn.Module | Classifier


@dataclass(frozen=True)
class Numerics:
    """How the search network is run; verdicts are fp32 and unfolded whatever stands here."""

    fold: bool = True
    channels_last: bool | None = None
    compile: bool = False
    bf16: bool = False


@dataclass(frozen=True)
class Remedies:
    """How the search asks models whose own gradients mislead; `Classifier` says more."""

    bpda: Mapping[str, StandIn | None] = field(default_factory=dict)
    eot: int | None = None
    probabilities: bool = False


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
    surrogates: tuple[Classifier, ...] = ()  # asked in the models' place, where attacks are transferred


def resolved(
    models: Model | Sequence[Model],
    *,
    dataset: str | Dataset | tuple[Tensor, Tensor],
    attacks: str | Attack | Sequence[str | Attack],
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
    remedies: Remedies,
    watch: ProgressWatch,
    surrogates: Model | Sequence[Model] = (),
    surrogate_weights: Sequence[str | Path] = (),
    train: bool = False,
    retrain: bool = False,
    smooth: float | Smoothing | None = None,
) -> Setting:
    """The setting of an evaluation: data and models loaded, everything checked that can be before work begins."""
    data = _data(dataset)
    if samples is not None and (not isinstance(samples, int) or samples < 1):
        raise UserError(f"The number of samples must be a whole number of at least 1, not {samples!r}.")
    if not len(data):
        raise UserError(f"The data set {data.name} is empty; there is nothing to evaluate.")
    if batch_size != "auto" and (not isinstance(batch_size, int) or batch_size < 1):
        raise UserError(f"The batch size must be a whole number of at least 1, or auto, not {batch_size!r}.")
    chosen = chosen_device(device)
    specifications, norms, radii = _asked(_listed(attacks), _listed(norm), [str(value) for value in _listed(eps)])
    planned = plan(specifications, threats_of(norms, radii, data.threats))
    named = _listed(models)
    if not named:
        raise UserError("No model is given; name one, for example resnet18.")
    files = _listed(weights) if weights is not None else []
    if len(files) not in (0, len(named)):
        raise UserError(f"There are {len(named)} models but {len(files)} weights; give one weights entry per model.")

    smoothing = Smoothing(smooth) if isinstance(smooth, (int, float)) else smooth

    def load(entry: Model, file: str | Path | None, smoothing: Smoothing | None = None) -> Classifier:
        if isinstance(entry, str):
            entry = load_model(
                entry, dataset=data, weights=file, num_classes=num_classes, mean=mean,
                std=std, train=train, retrain=retrain, report=reporter(watch),
            ).to(chosen)  # fmt: skip
        return _classifier(entry, numerics, remedies, None if device == "auto" else chosen, smoothing)

    loaded = [load(entry, files[number] if files else None, smoothing) for number, entry in enumerate(named)]
    asked = _listed(surrogates)
    if len(surrogate_weights) not in (0, len(asked)):
        raise UserError(f"There are {len(asked)} surrogates but weights for {len(surrogate_weights)}; give one each.")
    crafters = [load(entry, surrogate_weights[number] if surrogate_weights else None)
                for number, entry in enumerate(asked)]  # fmt: skip
    crafters = list(_uniquely_named(crafters))
    planned = plan(specifications, planned.threats, [each.name for each in crafters])
    if any(each.smoothing is not None for each in loaded):
        check_smoothable(planned)
    ids = tuple(pick(len(data), samples))
    sources = tuple(str(getattr(each.model, "source", "given by the caller")) for each in loaded)
    return Setting(
        tuple(_uniquely_named(loaded)), sources,
        data, ids, planned, seed, None if batch_size == "auto" else batch_size, chosen, tuple(crafters),
    )  # fmt: skip


def check_smoothable(planned: Plan) -> None:
    """Check that all of a plan has a meaning for smoothed classifiers.

    Raises:
        UserError: nothing can be certified in one of the norms, or an attack reads a layer of a single pass.
    """
    if any(threat.norm == "L0" for threat in planned.threats):
        raise UserError("A smoothed classifier is certified in L2, L1 and Linf, and in L0 nothing is; leave L0 out.")
    for cell in planned.cells():
        if cell.surrogate is None:
            check_askable(cell.attack)


def _data(dataset: str | Dataset | tuple[Tensor, Tensor]) -> Dataset:
    if isinstance(dataset, str):
        return load_dataset(dataset)
    if not isinstance(dataset, (tuple, list)):
        return dataset
    if len(dataset) != 2 or not all(isinstance(part, Tensor) for part in dataset):
        raise UserError("Data in memory are a pair of tensors: images [N, C, H, W] in [0, 1], and labels [N].")
    return from_tensors(*dataset)


def _asked(attacks: list[Any], norms: list[str], radii: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Specifications, norms and radii; attack objects bring their own threat model unless one is given."""
    objects = [attack for attack in attacks if isinstance(attack, Attack)]
    if objects and not norms and not radii:
        if len(objects) < len(attacks) or len({(each.ball.norm, each.ball.eps) for each in objects}) > 1:
            raise UserError("These attacks have different threat models; say which with norm= and eps=.")
        norms, radii = [objects[0].ball.norm], [str(objects[0].eps)]
    wrong = [attack for attack in attacks if not isinstance(attack, (str, Attack))]
    if wrong:
        raise UserError(f"An attack is a name or an attack object, not {type(wrong[0]).__name__}.")
    return [attack if isinstance(attack, str) else registry.spelled(attack) for attack in attacks], norms, radii


def _classifier(
    entry: nn.Module | Classifier,
    numerics: Numerics,
    remedies: Remedies,
    device: torch.device | None,
    smoothing: Smoothing | None,
) -> Classifier:
    if isinstance(entry, Classifier):
        if smoothing is not None:
            raise UserError("A Classifier brings its own smoothing: Classifier(..., smoothing=Smoothing(0.25)).")
        return copy.copy(entry)  # its name may be changed below
    if not isinstance(entry, nn.Module):
        raise UserError(f"A model is a name, a torch.nn.Module or a Classifier, not {type(entry).__name__}.")
    settings = {**vars(numerics), **vars(remedies), "smoothing": smoothing}
    classifier = Classifier(entry, **settings)
    if device is not None and device.type != classifier.device.type:
        # A copy: the caller's own model stays where it is.
        classifier = Classifier(copy.deepcopy(entry).to(device), name=classifier.name, **settings)
    return classifier


def _uniquely_named(classifiers: Sequence[Classifier]) -> Sequence[Classifier]:
    names: list[str] = []
    for classifier in classifiers:
        base, count = classifier.name, 2
        while classifier.name in names:
            classifier.name = f"{base}-{count}"
            count += 1
        names.append(classifier.name)
    return classifiers


def reporter(watch: ProgressWatch) -> Callable[[str, float | None], None]:
    """What a model's training tells, as a watch takes it."""

    def report(text: str, share: float | None) -> None:
        if share is None:
            watch.say(text)
        else:
            watch.training(text, share)

    return report


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
