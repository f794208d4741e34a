"""Whether a model accepts the images of a data set and has enough classes; checked once, before any measurement."""

import torch
from torch import Tensor

from robustkit.black_box import BlackBox
from robustkit.data import LazyData
from robustkit.errors import UserError
from robustkit.host.failures import described_error, is_from_library

from .image_spec import ImageSpec
from .pixels import PixelModel
from .preprocessing import placement, require_channels


@torch.no_grad()
def require_compatible(model: PixelModel, images: ImageSpec, fix: str = "choose another model") -> None:
    """Run the model on two black images, and set its `num_classes` to its number of logits; one counts as two classes.

    Args:
        model: loaded.
        images: of the data set.
        fix: what to do about images that the model fails on.

    Raises:
        UserError: the model fails on such images, or has fewer classes than the data set.
    """
    if isinstance(model.network, BlackBox) and model.network.metered:
        return  # each question is a request, and none is made before the run counts them
    channels = 3 if model.gray else images.shape[0]
    if model.normalises:
        require_channels(model.mean, channels, model.name)
    try:
        logits = _on_black_images(model, images.shape)
    except Exception as error:
        raise UserError(_failure(error, model, images, _with_other_channels(model, images) or fix)) from error
    # The classifier unpacks tuples, dicts and other outputs later. Nested tensors have axes, but torch 2.14 raises at
    # their shape.
    one = False
    if isinstance(logits, Tensor) and not logits.is_nested and logits.ndim == 2:
        one = logits.shape[1] == 1
        model.num_classes = 2 if one else logits.shape[1]
    if model.num_classes < images.classes:
        own = "returns one logit, which counts as 2 classes" if one else f"has {model.num_classes} classes"
        which = _first_of(images, model.num_classes)
        advice = "choose a model or weights made for it"
        if images.data is not None and images.data.labels.min() == 1 and images.classes == model.num_classes + 1:
            advice = "no image has the label 0, so the labels probably count from 1: subtract 1"
        raise UserError(f"{model.name} {own}, {images.name} has {images.classes}{which}; {advice}.")


def _on_black_images(model: PixelModel, shape: tuple[int, ...]) -> object:
    # Two: batch statistics of one image do not exist. In the type of the weights, as all later queries are.
    return model(torch.zeros(2, *shape, **placement(model)._asdict()))


def _with_other_channels(model: PixelModel, images: ImageSpec) -> str | None:
    """What to do where the model takes pictures of the data with another number of channels; None where not."""
    if not isinstance(images.data, LazyData):
        return None
    channels, advice = (1, "read the images with --gray") if images.shape[0] == 3 else (3, "leave out --gray")
    try:
        _on_black_images(model, (channels, *images.shape[1:]))
    except Exception:  # whatever a user's code raises
        return None
    return advice


def _failure(error: Exception, model: PixelModel, images: ImageSpec, fix: str) -> str:
    """The error as a sentence: layers that refuse the shape of the images, or a bug in the model's own code."""
    what = f"the images of {images.name} ({'x'.join(map(str, images.shape))})"
    if is_from_library(error):
        reason = str(error).split("\n")[0].rstrip(".")
        return f"{model.name} does not take {what}: {reason}; {fix}."
    return f"{model.name} fails on {what}: {described_error(error)}; correct it, or {fix}."


def _first_of(images: ImageSpec, classes: int) -> str:
    """The first image of a class that the model does not have; nothing if no image of the data is of one."""
    if images.data is None:
        return ""
    missing = (images.data.labels >= classes).nonzero().flatten().tolist()
    return f" (image {missing[0]} has the label {int(images.data.labels[missing[0]])})" if missing else ""
