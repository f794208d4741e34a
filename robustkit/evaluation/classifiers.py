"""The classifiers of a request: its models loaded, on one device, with unique names."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robustkit.black_box import RemoteAccess
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.surrogate_ensemble import surrogate_ensemble
from robustkit.data import Dataset
from robustkit.errors import UserError
from robustkit.evaluation.request import EvaluationRequest, Model
from robustkit.host.progress import ProgressWatch
from robustkit.host.text import as_name
from robustkit.models import is_checkpoint, load_model
from robustkit.models.black_boxes import require_server
from robustkit.models.hub.clip import WITH_OPTIONS
from robustkit.models.prefixes import prefixed
from robustkit.models.sources import file_of
from robustkit.paths import user_path


def attacked_classifiers(
    request: EvaluationRequest, data: Dataset, device: torch.device, *, may_train: bool = True
) -> tuple[Classifier, ...]:
    """The models that are attacked.

    Raises:
        UntrainedError: one must be trained first, and `may_train` is false.
        UserError: there is none, one cannot be loaded, or the numbers of models, weights and names differ.
    """
    models = listed(request.models)
    if not models:
        raise UserError("No model is given; name one, for example resnet18.")
    files = listed(request.weights) if request.weights is not None else []
    if len(files) not in (0, len(models)):
        raise UserError(f"There are {len(models)} models but {len(files)} weights; give one weights entry per model.")
    _check_loading_options(request, models)
    chosen = checked_names(listed(request.names), len(models))
    loaded = [
        _loaded(request, model, files[number] if files else None, data, device, may_train)
        for number, model in enumerate(models)
    ]
    if chosen:
        return tuple(replace(classifier, name=name) for classifier, name in zip(loaded, chosen, strict=True))
    return uniquely_named(loaded, models, files)


def surrogate_classifiers(
    request: EvaluationRequest, data: Dataset, device: torch.device, *, may_train: bool = True
) -> tuple[Classifier, ...]:
    """The models that transfer attacks query.

    Raises:
        UntrainedError: one must be trained first, and `may_train` is false.
        UserError: one cannot be loaded, the numbers of surrogates and weights differ, or they make no ensemble.
    """
    models, files = listed(request.surrogates), request.surrogate_weights
    if len(files) not in (0, len(models)):
        raise UserError(f"There are {len(models)} surrogates but weights for {len(files)}; give one each.")
    only_queried = replace(request, smooth=None, rejects=False)
    loaded = [
        _loaded(only_queried, model, files[number] if files else None, data, device, may_train)
        for number, model in enumerate(models)
    ]
    named = uniquely_named(loaded, models, files)
    if not request.surrogate_ensemble:
        return named
    if len(named) < 2:
        raise UserError("An ensemble of surrogates has at least two; name another one, or leave out the ensemble.")
    return (surrogate_ensemble(named),)


def checked_names(names: Sequence[str], models: int) -> tuple[str, ...]:
    """The names that reports call the models by; none, or one for each model.

    Raises:
        UserError: their number is another, one is empty, or two are equal.
    """
    if len(names) not in (0, models):
        raise UserError(f"There are {models} models but {len(names)} names; give one name per model.")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise UserError(f"The name of a model must be a text with at least one letter, not {name!r}.")
    shown = tuple(map(as_name, names))
    for name in shown:
        if shown.count(name) > 1:
            raise UserError(f"Two models get the name {name!r}; give each a name of its own.")
    return shown


def training_reporter(watch: ProgressWatch) -> Callable[[str, float | None], None]:
    """A function that passes the progress of a model's training on to a watch."""

    def report(text: str, share: float | None) -> None:
        if share is None:
            watch.say(text)
        else:
            watch.training(text, share)

    return report


def listed(value: Any) -> list[Any]:
    """The value as a list: itself if it is one, else alone."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _check_loading_options(request: EvaluationRequest, models: Sequence[Model]) -> None:
    """Refuse options of models given by name where there is no such model: they would be ignored."""
    values = {
        "weights": request.weights, "num_classes": request.num_classes, "mean": request.mean, "std": request.std,
        "train": request.train or None, "retrain": request.retrain or None,
        "random_init": request.random_init or None,
    }  # fmt: skip
    if request.remote is not None:
        require_server(models)
    given = [name for name, value in values.items() if value is not None]
    if given and not any(isinstance(model, str) for model in models):
        raise UserError(
            f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} for models given by name; a module brings its "
            "own weights, and its normalisation as Classifier(module, mean=..., std=...)."
        )


def _loaded(
    request: EvaluationRequest,
    model: Model,
    weights: str | Path | None,
    data: Dataset,
    device: torch.device,
    may_train: bool,
) -> Classifier:
    if isinstance(model, str):
        model = load_model(
            model, dataset=data, weights=weights, num_classes=request.num_classes, mean=request.mean, std=request.std,
            train=request.train, retrain=request.retrain, random_init=request.random_init,
            report=training_reporter(request.watch), may_train=may_train, remote=request.remote or RemoteAccess(),
        ).to(device)  # fmt: skip
    if isinstance(model, Classifier):
        if request.smoothing is not None:
            raise UserError("A Classifier brings its own smoothing: Classifier(..., smoothing=Smoothing(0.25)).")
        if request.rejects:
            raise UserError("A Classifier says itself whether it rejects: Classifier(..., rejects=True).")
        _require_own_options(request, model)
        return model
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise UserError(f"{model.__name__} is a class; build the network first: {model.__name__}(...).")
    if not isinstance(model, nn.Module):
        raise UserError(f"A model is a name, a torch.nn.Module or a Classifier, not {type(model).__name__}.")
    classifier = Classifier(
        model, **vars(request.numerics), bpda=dict(request.bpda or {}), eot=request.eot,
        probabilities=request.probabilities, straight_through=request.straight_through,
        smoothing=request.smoothing, rejects=request.rejects,
    )  # fmt: skip
    if request.device != "auto" and device.type != classifier.device.type:
        return classifier.on(device)
    return classifier


def _require_own_options(request: EvaluationRequest, classifier: Classifier) -> None:
    """Refuse options of the search that the request has and the classifier has not."""
    asked = {
        "straight_through=True": request.straight_through and not classifier.straight_through,
        "bpda=...": bool(request.bpda) and not classifier.bpda,
        "probabilities=True": request.probabilities and not classifier.probabilities,
        f"eot={request.eot}": request.eot not in (None, classifier.eot),
    }
    for option, missing in asked.items():
        if missing:
            raise UserError(f"A Classifier brings its own options: Classifier(..., {option}).")


def uniquely_named(
    classifiers: Sequence[Classifier], models: Sequence[Model], files: Sequence[str | Path | None]
) -> tuple[Classifier, ...]:
    """The classifiers of `models` with their weights `files` (none, or one each), each with a name of its own."""
    named: dict[str, Classifier] = {}
    for number, (classifier, model) in enumerate(zip(classifiers, models, strict=True)):
        candidates = names_from_files(classifier.name, model, files[number] if files else None)
        numbered = (f"{candidates[-1]}-{count}" for count in range(2, len(classifiers) + 1))
        name = next(name for name in map(as_name, (*candidates, *numbered)) if name not in named)
        named[name] = classifier if name == classifier.name else replace(classifier, name=name)
    return tuple(named.values())


def names_from_files(name: str, model: Model, weights: str | Path | None) -> list[str]:
    """Names for a model that say which file its weights are from, the first one preferred.

    "net.Net-epoch9" for a checkpoint, else "net.Net-run1-epoch9" with the checkpoint's folder; "net.Net-run1" for
    another Net in a net.py. The first does not depend on the other models of a run: a run that grows keeps its names.
    """
    core = name.removesuffix("-smoothed")
    suffix = name.removeprefix(core)
    if weights is not None and is_checkpoint(weights):
        path = user_path(weights).resolve()
        first = path.stem if path.stem.startswith(core) else f"{core}-{path.stem}"
        return [first + suffix, f"{core}-{path.parent.name}-{path.stem}{suffix}"]
    file = file_of(model) if isinstance(model, str) else None
    if file is not None:
        return [name, f"{core}-{file.resolve().parent.name}{suffix}"]
    by_prefix = prefixed(model) if isinstance(model, str) else None
    if by_prefix is not None:  # the user or the folder that an ID or a path has before its last part
        call = WITH_OPTIONS.fullmatch(by_prefix.rest)
        where = by_prefix.rest if call is None else call["where"]
        with_options = [] if call is None else [f"{core}({call['options']}){suffix}"]
        return [name, *with_options, f"{user_path(where).resolve().parent.name}-{core}{suffix}"]
    return [name]
