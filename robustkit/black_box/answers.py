"""What a function or a server returned, as scores: checked, because it may be anything."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError

Returns = Literal["logits", "probabilities", "labels"]


def scores_of(answer: Any, returns: Returns, rows: int, classes: int | None, name: str) -> Tensor:
    """`[rows, K]` float32 scores (float64 if the answer has them), the largest for the class of the answer.

    Probabilities become their logarithms, so that attacks climb on numbers that do not saturate. A label becomes 1 for
    its class and -1 for all others.

    Args:
        answer: anything that numpy makes an array of.
        returns: what it holds.
        rows: how many images were sent.
        classes: K, if it is known.
        name: of the model, for errors.

    Raises:
        UserError: the answer is something else.
    """
    values = _array(answer, name)
    if returns == "labels":
        assert classes is not None, "labels without a number of classes"
        return one_class(_labels(values, rows, classes, name), classes)
    if values.ndim != 2 or len(values) != rows or values.shape[1] < 2:
        raise UserError(
            f"{name} must return {rows} rows of scores for {rows} images, [images, classes], not {list(values.shape)}"
            + ("; for whole numbers, one for each image, say returns='labels'." if values.ndim == 1 else ".")
        )
    limits.require_at_most(f"The number of classes of {name}", values.shape[1], limits.CLASSES)
    if classes not in (None, values.shape[1]):
        raise UserError(f"{name} returned {values.shape[1]} scores for an image, but it has {classes} classes.")
    scores = torch.from_numpy(values.astype(np.float64 if values.dtype == np.float64 else np.float32))
    return logarithms(scores, name) if returns == "probabilities" else scores


def one_class(labels: Tensor, classes: int) -> Tensor:
    """`[B, K]` scores that say nothing but the class: 1 for it, -1 for all others."""
    return 2 * torch.nn.functional.one_hot(labels, classes).float() - 1


def logarithms(probabilities: Tensor, name: str) -> Tensor:
    """The logarithms of probabilities `[B, K]`.

    Raises:
        UserError: a number is no probability.
    """
    if not bool(((probabilities >= 0) & (probabilities <= 1)).all()):
        raise UserError(
            f"{name} returned numbers outside of [0, 1], which are not probabilities; if they are logits, say so "
            "(returns='logits', or the key \"logits\" of a server's JSON)."
        )
    return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()


def _array(answer: Any, name: str) -> Any:
    if isinstance(answer, Tensor):
        answer = _numpy(answer, name)
    try:
        values = np.asarray(answer)
    except ValueError:  # rows of different lengths
        values = np.asarray(None)
    if values.dtype.kind not in "fiub":
        raise UserError(f"{name} returned {type(answer).__name__} and not one row of numbers for each image.")
    return values


def _numpy(answer: Tensor, name: str) -> Any:
    # numpy has no bfloat16, and float32 holds all its values.
    plain = answer.detach().float() if answer.dtype == torch.bfloat16 else answer.detach()
    try:
        return plain.cpu().numpy()
    except (TypeError, RuntimeError):
        raise UserError(
            f"{name} returned a tensor that numpy cannot read ({answer.layout}, {answer.dtype}, {answer.device}); "
            "return a dense one with values."
        ) from None


def _labels(values: Any, rows: int, classes: int, name: str) -> Tensor:
    if values.ndim != 1 or len(values) != rows or values.dtype.kind not in "iu":
        raise UserError(
            f"{name} must return one whole number, the class, for each of {rows} images, not {list(values.shape)} of "
            f"{values.dtype}."
        )
    wrong = [int(value) for value in values if not 0 <= value < classes]
    if wrong:
        raise UserError(f"{name} returned the class {wrong[0]}, but its classes are 0 to {classes - 1}.")
    return torch.from_numpy(values.astype(np.int64))
