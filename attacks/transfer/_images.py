"""Differentiable transformations of images, with separate parameters for each row.

Sums are written out, because a convolution or a matrix product may round differently in another batch size.
"""

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from robustkit.primitives.rows import along

from .._schedules import at, table

_DEVIATIONS = 3  # of a Gaussian kernel on either side, as in the authors' code of TI-FGSM


def as_images(values: Tensor) -> Tensor:
    """`[B, *S]` values as `[B, C, H, W]`; one axis is a row of pixels, two are a gray image."""
    if values.dim() == 2:
        return values[:, None, None]
    return values.unsqueeze(1) if values.dim() == 3 else values.flatten(1, -3)


def blurred(images: Tensor, side: int) -> Tensor:
    """The images convolved with a Gaussian kernel of an odd `side`, zero outside of the image."""
    reach = side // 2
    weights = [math.exp(-((_DEVIATIONS * place / reach) ** 2) / 2) for place in range(-reach, reach + 1)]
    weights = [weight / sum(weights) for weight in weights]
    height, width = images.shape[-2:]
    wide = F.pad(images, (reach, reach, 0, 0))
    images = sum((weight * wide[..., at : at + width] for at, weight in enumerate(weights)), torch.zeros_like(images))
    tall = F.pad(images, (0, 0, reach, reach))
    return sum((weight * tall[..., at : at + height, :] for at, weight in enumerate(weights)), torch.zeros_like(images))


def shrunk(images: Tensor, share: Tensor, top: Tensor, left: Tensor) -> Tensor:
    """The images resized bilinearly to a `share` of both sides and padded with zeros to their size.

    Args:
        images: `[B, C, H, W]`.
        share: `[B]` from 0 to 1, rounded down to whole pixels, at least one.
        top: `[B]` share of the padding that goes above the image, from 0 to 1.
        left: `[B]` share of the padding that goes to its left.
    """
    (rows, row_inside), (columns, column_inside) = (
        _resized(side, share, before) for side, before in zip(images.shape[-2:], (top, left), strict=True)
    )
    inside = (row_inside.unsqueeze(2) & column_inside.unsqueeze(1)).unsqueeze(1).to(images)
    height, width = images.shape[-2:]
    rows, columns = rows.unsqueeze(2).expand(-1, -1, width), columns.unsqueeze(1).expand(-1, height, -1)
    return sampled(images, rows, columns) * inside


def _resized(side: int, share: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """`[B, side]` where each value of a resized and padded axis comes from, and whether it is no padding."""
    size = (share * side).floor().clamp(min=1)
    start = (before * (side - size + 1)).floor().clamp(max=side - 1).unsqueeze(1)
    size = size.unsqueeze(1)
    place = torch.arange(side, device=share.device) - start
    source = ((place + 0.5) * (side / size) - 0.5).clamp(0, side - 1)
    return source, (place >= 0) & (place < size)


def sampled(
    images: Tensor, rows: Tensor, columns: Tensor, blocks: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
) -> Tensor:
    """The images at the given places, interpolated bilinearly between pixels.

    Args:
        images: `[B, C, H, W]`.
        rows: `[B, H, W]` row of each pixel's source; whole numbers are the centres of pixels.
        columns: `[B, H, W]` its column.
        blocks: the first and last row, then column `[B, H, W]`, outside of which the pixel's source image is zero; by
            default the whole image.
    """
    height, width = images.shape[-2:]
    first_row, last_row, first_column, last_column = blocks or (0, height - 1, 0, width - 1)
    flat, top, left = images.flatten(2), rows.floor(), columns.floor()
    total = torch.zeros_like(images)
    for row, row_weight in ((top, 1 - (rows - top)), (top + 1, rows - top)):
        for column, column_weight in ((left, 1 - (columns - left)), (left + 1, columns - left)):
            inside = (row >= first_row) & (row <= last_row) & (column >= first_column) & (column <= last_column)
            weight = (row_weight * column_weight * inside).to(images).unsqueeze(1)
            place = row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
            index = place.flatten(1).unsqueeze(1).expand(-1, images.shape[1], -1)
            total = total + weight * flat.gather(2, index).reshape(images.shape)
    return total


def dimmed(values: Tensor, halvings: Tensor, most: int) -> Tensor:
    """The values of each row divided by 2 to the power of its `halvings` `[B]`, which are from 0 to `most`."""
    return values * along(at(halvings, _halves(most), values), values)


@cache
def _halves(most: int) -> Tensor:
    """`[most + 1]` powers of a half; a table, because torch's powers are not exact."""
    return table(0.5**number for number in range(most + 1))
