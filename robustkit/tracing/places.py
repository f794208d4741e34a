"""Outputs whose values belong to places of the image: feature maps in either layout, and grids of tokens."""

import math
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

Layout = Literal["channels first", "channels last", "tokens"]


def layout(shape: Sequence[int], image: Sequence[int]) -> Layout | None:
    """The layout of the output for one image, given the image's own shape `[C, H, W]`; None if it is no feature map.

    Of three axes, the two whose sizes have the proportions of the image are height and width; if both readings fit
    equally well, channels come first. Of two axes the first counts tokens, if it is a square number for a square image,
    or a square number plus one class token.
    """
    if len(image) != 3:
        return None
    if len(shape) == 2:
        side = math.isqrt(shape[0])
        return "tokens" if image[1] == image[2] and side > 1 and side**2 in (shape[0], shape[0] - 1) else None
    if len(shape) != 3:
        return None
    first, last = (_misfit(places, image) for places in ((shape[1], shape[2]), (shape[0], shape[1])))
    if first <= last:
        return "channels first" if shape[1] * shape[2] > 1 else None
    return "channels last" if shape[0] * shape[1] > 1 else None


def as_map(values: Tensor, image: Sequence[int]) -> Tensor:
    """Outputs `[B, ...]` with a layout, as `[B, channels, height, width]` without the class token."""
    kind = layout(values.shape[1:], image)
    assert kind is not None, "the output is no feature map"
    if kind == "channels first":
        return values
    if kind == "channels last":
        return values.permute(0, 3, 1, 2)
    side = math.isqrt(values.shape[1])
    return values[:, values.shape[1] - side**2 :].transpose(1, 2).reshape(len(values), -1, side, side)


def _misfit(places: tuple[int, int], image: Sequence[int]) -> int:
    # Products instead of quotients, so that nothing is rounded: 0 for the image's own proportions.
    return abs(places[0] * image[2] - places[1] * image[1])
