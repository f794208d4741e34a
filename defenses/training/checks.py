"""Checks before a training: data splits that share no image, and a network that fits the data."""

from itertools import combinations

import torch
from torch import nn

from robustkit.classifier import rejection
from robustkit.classifier.classifier import Classifier, require_usable_weights
from robustkit.classifier.isolation import untouched
from robustkit.classifier.logits import logits_of
from robustkit.data import Dataset
from robustkit.data.overlap import check_disjoint
from robustkit.errors import UserError
from robustkit.models.preprocessing import placement, require_normalisable

from ..weights.batchnorm import norms_of
from .recipe import Recipe


def trained_module(model: nn.Module | Classifier) -> nn.Module:
    """The module that is trained; of a `Classifier` the one with its normalisation.

    Raises:
        UserError: it does not take pixels in [0, 1], returns no logits, or rejects images.
    """
    if isinstance(model, Classifier):
        if model.probabilities:
            raise UserError(
                f"Training takes logits, but {model.name} returns probabilities; return what goes into them."
            )
        rejection.refuse("Training", model.name, rejects=model.rejects)
        if tuple(model.bounds) != (0.0, 1.0):
            raise UserError(
                f"Training takes pixels in [0, 1], but {model.name} has bounds {model.bounds}; scale them "
                "inside the model."
            )
        return model.model
    return model


def checked_data(train: Dataset, val: Dataset, test: Dataset | None) -> None:
    """Refuse data sets that are empty, have a single class, share images, or give a label two meanings.

    Raises:
        UserError: the sentence names the data sets.
    """
    for data, name in ((train, "training"), (val, "validation")):
        if not len(data):
            raise UserError(
                f"There are no {name} images; give some: training needs them, and validation images choose the epoch."
            )
    if len(train) < 2:
        raise UserError("There is only one training image; give more.")
    check_several_classes(train, val)
    parts = {"training": train, "validation": val, **({} if test is None else {"test": test})}
    for (first, one), (second, other) in combinations(parts.items(), 2):
        _check_classes(one, first, other, second)
    check_disjoint(parts)


def check_several_classes(train: Dataset, val: Dataset) -> None:
    """Refuse images of a single class: always predicting it is then perfect, so nothing is learned or compared.

    Raises:
        UserError: the sentence names the images and the class.
    """
    for data, name in ((train, "training"), (val, "validation")):
        classes = set(data.labels.tolist())
        if len(classes) == 1:
            raise UserError(
                f"All {name} images are of class {classes.pop()}, so a model that always predicts it is perfect; "
                f"give {name} images of several classes."
            )


def checked_network(model: nn.Module, data: Dataset, held_out: Dataset, recipe: Recipe, processes: int = 1) -> None:
    """Refuse a network without weights or without an output for some label, and batches that are too small.

    Args:
        model: takes pixels in [0, 1].
        data: training images.
        held_out: validation images.
        recipe: all processes share its batch.
        processes: how many train together.

    Raises:
        UserError: the sentence names the fix.
    """
    weights = next((each for each in model.parameters() if each.numel()), None)
    if weights is None:
        raise UserError("The model has no weights, so it cannot be trained; give one that has.")
    require_usable_weights(model)
    width = min(_width(model, part, weights.device) for part in (data, held_out))
    largest = int(max(data.labels.max(), held_out.labels.max()))
    if largest >= width:
        raise UserError(
            f"The data have classes 0 to {largest}, but the model has {width} outputs; give it a head for all classes."
        )
    if processes > 1 and recipe.batch < 2 * processes:
        raise UserError(
            f"A batch of {recipe.batch} is too small for {processes} processes, each of which needs two images; give a "
            "larger batch, or fewer processes."
        )
    if recipe.batch == 1 and recipe.bn != "frozen" and norms_of(model):
        raise UserError("BatchNorm cannot take statistics of one image; give a larger batch, or bn=frozen.")


def _width(model: nn.Module, data: Dataset, device: torch.device) -> int:
    """The number of logits per image."""
    x = data.batch([0])[0].to(device)
    require_normalisable(model, x[0], "the model")
    with untouched(model), torch.no_grad():
        try:
            logits = logits_of(model(x), x)
        except Exception as error:
            raise _failure(model, x.shape[1:], error) from error
    if not bool(logits.isfinite().all()):
        raise UserError("The model's logits of an image are not finite; check its weights and normalisation.")
    return logits.shape[1]


def _check_classes(one: Dataset, first: str, other: Dataset, second: str) -> None:
    for number, (name, other_name) in enumerate(zip(one.class_names, other.class_names, strict=False)):
        if name != other_name:
            raise UserError(
                f"Label {number} has two meanings: class {number} is {name!r} in the {first} images but {other_name!r} "
                f"in the {second} images; give all splits the same classes, empty folders included."
            )


def _failure(model: nn.Module, shape: torch.Size, error: Exception) -> UserError:
    if isinstance(error, UserError):
        return error
    dtype = placement(model).dtype
    if dtype != torch.float32:
        kind = str(dtype).removeprefix("torch.")
        return UserError(f"The model's weights are {kind}, and training is in float32; convert them: model.float().")
    reason = str(error).split("\n")[0].rstrip(".") or type(error).__name__
    return UserError(f"The model does not take images of {'x'.join(map(str, shape))}: {reason}; give one that does.")
