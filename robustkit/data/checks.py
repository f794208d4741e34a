"""Images and labels from users, checked and converted into one form.

Each error names the first invalid image. A wrong scale that is not noticed here makes every result wrong.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError

# torch hardly computes with floats of 8 bits.
_OF_IMAGES = (torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64)
# Rounding of a resize or of a division in float32 overshoots by about 1e-7; a wrong scale by far more.
OVERSHOOT = 1e-6


class LabelledImages(NamedTuple):
    """As many images as labels."""

    x: Tensor  # [N, C, H, W] float32 in [0, 1]
    y: Tensor  # [N] int64


def checked_images(x: Tensor, y: Tensor, source: str) -> LabelledImages:
    """`x` and `y` as float32 `[N, C, H, W]` in [0, 1] and int64 `[N]`; `source` names them in errors.

    uint8 images are divided by 255 and may be `[N, H, W, C]` with 1 or 3 channels; `[N, H, W]` gets a channel axis.

    Raises:
        UserError: they are not images with labels; the message names the first invalid one.
    """
    labels = _labels(_plain(y, "labels y", source), source)
    images = _scaled(_channels_first(_plain(x, "images x", source), source))
    if len(images) != len(labels):
        raise UserError(
            f"{source} has {len(images)} images but {len(labels)} labels; there must be one label per image."
        )
    if not len(images):
        raise empty(source)
    return LabelledImages(_in_range(images, source), labels)


def empty(source: str) -> UserError:
    """The error for a data set without an image."""
    return UserError(f"{source} is empty; it must hold at least one image.")


def checked_class_names(given: tuple[str, ...] | None, y: Tensor, source: str) -> tuple[str, ...]:
    """One name for each class: those given, or "0", "1", ... up to the largest label.

    Raises:
        UserError: there are fewer names than classes.
    """
    count = int(y.max()) + 1
    if given is None:
        return tuple(str(label) for label in range(count))
    if len(given) < count:
        first = int((y >= len(given)).nonzero()[0])
        raise UserError(
            f"{source} has {len(given)} class names, but image {first} has the label {int(y[first])}; name every class."
        )
    return given


def require_channels_first(shape: Sequence[int], what: str) -> None:
    """Refuse images that are almost certainly `[N, H, W, C]`; `what` names them in errors.

    A float array can be `[N, 8, 3, 3]` on purpose, and a signal `[N, 12, 1000, 1]`. Refused is what would be a strip of
    three values with many channels, or one value wide and as high as there are channels.

    Raises:
        UserError: they are.
    """
    if len(shape) != 4 or shape[1] <= 4:
        return
    if (shape[3] == 3 and shape[2] > 4) or (shape[3] == 1 and shape[1] == shape[2]):
        raise UserError(
            f"{what} have the shape {list(shape)}, with the channels last; give them as [N, C, H, W]: "
            "x.permute(0, 3, 1, 2) of a tensor, x.transpose(0, 3, 1, 2) of an array."
        )


def checked_label(label: int, number: int, source: str) -> int:
    """The label of image `number`, a class from 0.

    Raises:
        UserError: it is none.
    """
    if label < 0:
        raise UserError(f"Labels of {source} must be 0 or more; image {number} has the label {limits.shown(label)}.")
    if label >= limits.CLASSES:
        raise UserError(
            f"Labels of {source} must be below {limits.CLASSES:,}; image {number} has the label "
            f"{limits.shown(label)}: number the classes from 0."
        )
    return label


def require_classes(y: Tensor, source: str) -> Tensor:
    """Labels `[N]`, each a class from 0.

    Raises:
        UserError: one is none; the message names the first.
    """
    # A name per class is made of the largest label, and a model of as many classes.
    wrong = (y < 0) | (y >= limits.CLASSES)
    if wrong.any():
        first = int(wrong.nonzero()[0])
        checked_label(int(y[first]), first, source)
    return y


def _plain(values: Tensor, what: str, source: str) -> Tensor:
    """`values` on the CPU.

    Raises:
        UserError: they are no plain array of numbers.
    """
    kind = (
        "nested" if values.is_nested
        else "quantised" if values.is_quantized
        else "without values (on the device meta)" if values.is_meta
        else "sparse" if values.layout != torch.strided
        else None
    )  # fmt: skip
    if kind is not None:
        raise UserError(f"The {what} of {source} must be a plain tensor, not one that is {kind}.")
    return values.cpu()


def _labels(y: Tensor, source: str) -> Tensor:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise UserError(f"The labels y of {source} must be [N], one class number per image, not {list(y.shape)}.")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise UserError(f"The labels y of {source} must be integers, not {_dtype(y)} (first: {y[:1].tolist()}).")
    return require_classes(y.long(), source)


def _channels_first(x: Tensor, source: str) -> Tensor:
    if x.ndim == 3:
        x = x.unsqueeze(1)
    if x.ndim != 4:
        raise UserError(f"The images x of {source} must be [N, C, H, W], not {list(x.shape)}.")
    if 0 in x.shape[1:]:
        raise UserError(f"The images x of {source} have no pixels: their shape is {list(x.shape)}.")
    # Only uint8 arrays are pictures for sure; a float array could be [N, 8, 3, 3] on purpose.
    if x.dtype == torch.uint8 and x.shape[1] not in (1, 3) and x.shape[3] in (1, 3):
        x = x.permute(0, 3, 1, 2)
    if x.dtype == torch.uint8 and x.shape[1] > 4 and x.shape[3] in (2, 4):
        raise UserError(
            f"The images x of {source} have {x.shape[3]} channels, which stand last; leave the transparency out, and "
            "give them with 1 or 3."
        )
    require_channels_first(x.shape, f"The images x of {source}")
    if x.dtype not in _OF_IMAGES:
        raise UserError(f"The images x of {source} must be floats in [0, 1] or uint8, not {_dtype(x)}.")
    if x[:1].numel() > limits.IMAGE_VALUES:
        raise UserError(
            f"The images x of {source} have {x[0].numel():,} values each, more than {limits.IMAGE_VALUES:,}; resize "
            "them."
        )
    return x.contiguous()


def _scaled(x: Tensor) -> Tensor:
    return x.float().div_(255) if x.dtype == torch.uint8 else x


def _in_range(x: Tensor, source: str) -> Tensor:
    low, high = x.flatten(1).amin(1).double(), x.flatten(1).amax(1).double()
    not_finite = ~(low.isfinite() & high.isfinite())
    if not_finite.any():
        first = int(not_finite.nonzero()[0])
        raise UserError(f"Images of {source} must be finite; image {first} has NaN or infinity: correct or remove it.")
    outside = (low < -OVERSHOOT) | (high > 1 + OVERSHOOT)
    if outside.any():
        first = int(outside.nonzero()[0])
        value = float(high[first] if high[first] > 1 + OVERSHOOT else low[first])
        raise UserError(
            f"{source}: images must lie in [0, 1]; image {first} has a value {value:.6g}: {_fix(low, high)}."
        )
    return x.float().clamp(0, 1)


def _fix(low: Tensor, high: Tensor) -> str:
    if low.min() < 0:
        return "undo the normalisation (x * std + mean)"
    return "divide by 255 or store uint8" if high.max() > 2 else "scale them to it"


def _dtype(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")
