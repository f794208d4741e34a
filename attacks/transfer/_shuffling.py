"""Images whose blocks are shuffled and rotated, each image with random numbers of its own.

The image is cut into strips of random widths, rows or columns, and each strip into blocks (Wang et al. 2024,
arXiv:2308.10299).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.rows import along

from ._images import sampled

MOST_BLOCKS = 100  # along each side: the random numbers of one copy grow with the square


class Draw(NamedTuple):
    """Identifies the random numbers of each row."""

    key: Tensor  # [B] int64 of each row's stream
    number: Tensor  # [B] int64 of the draw


def shuffled(images: Tensor, draw: Draw, blocks: int, angle: float) -> Tensor:
    """The images with their blocks in another order, as a differentiable function.

    Args:
        images: `[B, C, H, W]`.
        draw: the random numbers of each row.
        blocks: number of strips, and of blocks in each.
        angle: the largest rotation of a block in degrees.
    """
    n = blocks
    height, width = images.shape[-2:]
    draws = noise.uniform(*draw, (1 + 2 * n + 3 * n * n,))
    coin, strips, inner = draws[:, 0], draws[:, 1 : 1 + 2 * n].reshape(-1, 2, n), draws[:, 1 + 2 * n :]
    lengths, order, turns = inner.reshape(-1, 3, n, n).unbind(1)
    angles = (2 * turns.flatten(1) - 1) * math.radians(angle)

    def layout(first: int, second: int) -> _Layout:
        return _layout(_shuffled(strips[:, 0], strips[:, 1], first), _shuffled(lengths, order, second), angles)

    in_rows, in_columns = layout(height, width), layout(width, height).transposed()
    chosen = zip(in_rows, in_columns, strict=True)
    rows_first = along(coin < 0.5, images[:, 0])
    return _sampled(images, _Layout(*(torch.where(rows_first, *pair) for pair in chosen)))


class _Layout(NamedTuple):
    """Where each pixel comes from."""

    down: Tensor  # [3, B, H, W] row before rotation, first and last row of its block
    across: Tensor  # [3, B, H, W] the same of columns
    angle: Tensor  # [B, H, W] by which the block is turned

    def transposed(self) -> "_Layout":
        return _Layout(self.across.mT, self.down.mT, self.angle.mT)


class _Axis(NamedTuple):
    """Where the pixels of a shuffled axis come from."""

    block: Tensor  # [..., L] int64 number of the block
    places: Tensor  # [3, ..., L] the pixel, and the first and last one of its block


def _shuffled(lengths: Tensor, order: Tensor, side: int) -> _Axis:
    """Blocks of lengths in the ratio 1 + `lengths` `[..., n]`, sorted by `order` `[..., n]`."""
    ends = (((1 + lengths).cumsum(-1) / (1 + lengths).sum(-1, keepdim=True)) * side).round()
    starts = torch.cat([torch.zeros_like(ends[..., :1]), ends[..., :-1]], -1)
    blocks = torch.argsort(order, dim=-1, stable=True)
    sizes = (ends - starts).gather(-1, blocks)
    new_ends, place = sizes.cumsum(-1), torch.arange(side, device=order.device)
    slot = (place >= new_ends.unsqueeze(-1)).sum(-2)
    block = blocks.gather(-1, slot)
    first, last = starts.gather(-1, block), ends.gather(-1, block) - 1
    source = first + place - (new_ends - sizes).gather(-1, slot)
    return _Axis(block, torch.stack([source, first, last]))


def _layout(strips: _Axis, blocks: _Axis, angles: Tensor) -> _Layout:
    """The image of which `strips` `[B, H]` are rows and `blocks` `[B, n, W]` are the blocks of each strip."""
    count, width = blocks.block.shape[1:]
    strip = strips.block.unsqueeze(2).expand(-1, -1, width)
    number = strip * count + blocks.block.gather(1, strip)
    return _Layout(
        strips.places.unsqueeze(3).expand(-1, -1, -1, width),
        torch.stack([each.gather(1, strip) for each in blocks.places]),
        angles.gather(1, number.flatten(1)).reshape(number.shape),
    )


def _sampled(images: Tensor, layout: _Layout) -> Tensor:
    """The images with each pixel from where it comes, in a block turned about its middle; zero from outside of it."""
    row, top, bottom = layout.down
    column, left, right = layout.across
    middle, centre, cos, sin = (top + bottom) / 2, (left + right) / 2, layout.angle.cos(), layout.angle.sin()
    rows = middle + cos * (row - middle) - sin * (column - centre)
    columns = centre + sin * (row - middle) + cos * (column - centre)
    return sampled(images, rows, columns, (top, bottom, left, right))
