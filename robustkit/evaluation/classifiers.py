"""The classifiers of a request: its models loaded, on one device, with unique names."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothing import Smoothing
from robustkit.data import Dataset
from robustkit.errors import UserError
from robustkit.evaluation.request import EvaluationRequest, Model
from robustkit.host.progress import ProgressWatch
from robustkit.models import load_model


def attacked_classifiers(request: EvaluationRequest, data: Dataset, device: torch.device) -> tuple[Classifier, ...]:
    """The models that are attacked.

    Raises:
        UserError: there is none, one cannot be loaded, or the numbers of models and weights differ.
    """
    models = listed(request.models)
    if not models:
        raise UserError("No model is given; name one, for example resnet18.")
    files = listed(request.weights) if request.weights is not None else []
    if len(files) not in (0, len(models)):
        raise UserError(f"There are {len(models)} models but {len(files)} weights; give one weights entry per model.")
    loaded = [
        _loaded(request, model, files[number] if files else None, data, device, request.smoothing)
        for number, model in enumerate(models)
    ]
    return _uniquely_named(loaded)


def surrogate_classifiers(request: EvaluationRequest, data: Dataset, device: torch.device) -> tuple[Classifier, ...]:
    """The models that transfer attacks query.

    Raises:
        UserError: one cannot be loaded, or the numbers of surrogates and weights differ.
    """
    models, files = listed(request.surrogates), request.surrogate_weights
    if len(files) not in (0, len(models)):
        raise UserError(f"There are {len(models)} surrogates but weights for {len(files)}; give one each.")
    loaded = [
        _loaded(request, model, files[number] if files else None, data, device, None)
        for number, model in enumerate(models)
    ]
    return _uniquely_named(loaded)


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


def _loaded(
    request: EvaluationRequest,
    model: Model,
    weights: str | Path | None,
    data: Dataset,
    device: torch.device,
    smoothing: Smoothing | None,
) -> Classifier:
    if isinstance(model, str):
        model = load_model(
            model, dataset=data, weights=weights, num_classes=request.num_classes, mean=request.mean, std=request.std,
            train=request.train, retrain=request.retrain, report=training_reporter(request.watch),
        ).to(device)  # fmt: skip
    if isinstance(model, Classifier):
        if smoothing is not None:
            raise UserError("A Classifier brings its own smoothing: Classifier(..., smoothing=Smoothing(0.25)).")
        return model
    if not isinstance(model, nn.Module):
        raise UserError(f"A model is a name, a torch.nn.Module or a Classifier, not {type(model).__name__}.")
    classifier = Classifier(
        model, **vars(request.numerics), bpda=dict(request.bpda or {}), eot=request.eot,
        probabilities=request.probabilities, smoothing=smoothing,
    )  # fmt: skip
    if request.device != "auto" and device.type != classifier.device.type:
        # A copy: the caller's own model stays where it is.
        return replace(classifier, model=copy.deepcopy(model).to(device))
    return classifier


def _uniquely_named(classifiers: Sequence[Classifier]) -> tuple[Classifier, ...]:
    named: dict[str, Classifier] = {}
    for classifier in classifiers:
        name, count = classifier.name, 2
        while name in named:
            name, count = f"{classifier.name}-{count}", count + 1
        named[name] = classifier if name == classifier.name else replace(classifier, name=name)
    return tuple(named.values())
