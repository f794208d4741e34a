"""Windows of images: sums over all of them, and which pixels lie in one.

The last two axes of an input are its height and its width; all values of a pixel belong together.
"""

import torch
from torch import Tensor

from robustkit.primitives.rounding import wide


def pixels(values: Tensor) -> Tensor:
    """`[B, H, W]` sums over the values of each pixel of `[B, ..., H, W]`, in float64."""
    return wide(values).reshape(len(values), -1, *values.shape[-2:]).sum(1)


def window_sums(values: Tensor, tall: int, wide: int) -> Tensor:
    """`[B, H - tall + 1, W - wide + 1]` sums of `[B, H, W]` values over each window, by its upper left corner."""
    total = torch.nn.functional.pad(values.cumsum(1).cumsum(2), (1, 0, 1, 0))
    lower, upper = total[:, tall:], total[:, : total.shape[1] - tall]
    rows = lower - upper
    return rows[:, :, wide:] - rows[:, :, : rows.shape[2] - wide]


def window(row: Tensor, column: Tensor, tall: int | Tensor, wide: int | Tensor, like: Tensor) -> Tensor:
    """Bool, broadcast over `like` `[B, ..., H, W]`: the pixels of windows by their upper left corners and sides.

    Corners are `[B]`; sides are the same for all rows or `[B]`. A window may reach beyond the image.
    """
    inside = _between(row, tall, like.shape[-2]).unsqueeze(2) & _between(column, wide, like.shape[-1]).unsqueeze(1)
    return over_pixels(inside, like)


def over_pixels(chosen: Tensor, like: Tensor) -> Tensor:
    """`[B, H, W]` pixels, or `[H, W]`, in a shape that broadcasts over the values of `like` `[B, ..., H, W]`."""
    rows = chosen.shape[:-2]
    return chosen.reshape(*rows, *[1] * (like.dim() - 2 - len(rows)), *chosen.shape[-2:])


def _between(first: Tensor, count: int | Tensor, most: int) -> Tensor:
    place = torch.arange(most, device=first.device)
    return (place >= first.unsqueeze(1)) & (place < (first + count).unsqueeze(1))
