"""Whether a model can answer for a data set, asked once before anything is measured."""

import torch
from torch import Tensor

from robustkit.errors import UserError

from .pixels import PixelModel
from .target import Target


@torch.no_grad()
def require_fit(model: PixelModel, target: Target) -> None:
    """Ask the model about two black images; sets `num_classes` to what it answers.

    Raises:
        UserError: it cannot take such images, or has fewer classes than the data set.
    """
    seen = 3 if model.gray else target.shape[0]
    if model.normalises and model.mean.numel() not in (1, seen):
        raise UserError(f"mean and std have {model.mean.numel()} numbers, but {model.name} sees {seen} channels.")
    try:
        logits: object = model(torch.zeros(2, *target.shape))  # two: batch statistics of one image do not exist
    except Exception as error:
        shape = "x".join(map(str, target.shape))
        reason = str(error).split("\n")[0].rstrip(".")
        raise UserError(
            f"{model.name} does not take the images of {target.name} ({shape}): {reason}; choose another model."
        ) from error
    # Tuples, dicts and the like are for the classifier to unpack.
    if isinstance(logits, Tensor) and logits.ndim == 2:
        model.num_classes = logits.shape[1]
    if model.num_classes < target.classes:
        raise UserError(
            f"{model.name} has {model.num_classes} classes, {target.name} has {target.classes}; "
            "choose a model or weights made for it."
        )
