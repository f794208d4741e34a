"""Threat models that move the pixels of a picture: rotations, translations, both, and a flow field.

Engstrom et al. 2019, arXiv:1712.02779 (rotations and translations), Xiao et al. 2018, arXiv:1801.02612 (flow). Pictures
are resampled bilinearly. Ours differs from foolbox: a pixel is a pixel, and pictures that are not square are rotated
without being sheared. Places are rounded to 2^-16 pixels, so a rotation by 90 degrees moves pixels and blurs nothing,
and no bit depends on the batch.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.primitives.rendered import Rendered
from robustkit.primitives.rounding import wide

_STEPS = 2.0**16  # places per pixel


@dataclass(frozen=True)
class Rotation(Rendered):
    """Rotations by at most `eps` degrees around the middle; what comes in from outside is black.

    The parameter is the angle in degrees, counter-clockwise.
    """

    norm = "rotation"
    attacks = "grid, pgd or noise"
    largest = 180.0
    measure = "degrees"
    units: ClassVar[tuple[float, ...]] = (1.0,)

    def unit(self, like: Tensor) -> Tensor:
        return torch.tensor(self.units, dtype=like.dtype, device=like.device)

    def render(self, x: Tensor, query: Tensor) -> Tensor:
        wider = wide(query)
        return moved(x, wider[:, 0], wider[:, 1:])


@dataclass(frozen=True)
class Translation(Rotation):
    """Shifts by at most `eps` pixels down or up and right or left; what comes in from outside is black.

    The parameters are the shifts down and to the right, in pixels.
    """

    norm = "translation"
    largest = 1e4
    measure = "pixels"
    units = (1.0, 1.0)

    def render(self, x: Tensor, query: Tensor) -> Tensor:
        wider = wide(query)
        return moved(x, torch.zeros_like(wider[:, 0]), wider)


@dataclass(frozen=True)
class Spatial(Rotation):
    """Rotations by at most `eps` degrees, then shifts by at most a tenth of it in pixels: 30 means 3 pixels.

    The parameters are the angle in degrees, counter-clockwise, and the shifts down and to the right in pixels.
    """

    norm = "spatial"
    units = (1.0, 0.1, 0.1)


@dataclass(frozen=True)
class Flow(Rendered):
    """Every pixel is fetched from at most `eps` pixels away along each axis; border pixels continue outside.

    The parameters `[2, H, W]` are how far down and to the right each pixel is fetched from.
    """

    norm = "flow"
    attacks = "stadv, pgd or noise"
    largest = 1e4
    measure = "pixels"

    def unit(self, like: Tensor) -> Tensor:
        return torch.ones(2, *like.shape[2:], dtype=like.dtype, device=like.device)

    def render(self, x: Tensor, query: Tensor) -> Tensor:
        height, width = x.shape[2:]
        wider = wide(query)
        down, right = _axis(height, wider).reshape(-1, 1), _axis(width, wider)
        return sampled(x, (down + wider[:, 0]).clamp(0, height - 1), (right + wider[:, 1]).clamp(0, width - 1))


def moved(x: Tensor, degrees: Tensor, shift: Tensor) -> Tensor:
    """`[B, C, H, W]` pictures rotated counter-clockwise around their middle and then shifted.

    Args:
        x: the pictures.
        degrees: `[B]` float64.
        shift: `[B, 2]` float64 pixels down and to the right; `[B, 0]` for none.
    """
    height, width = x.shape[2:]
    down = _axis(height, degrees).reshape(1, -1, 1) - (height - 1) / 2
    right = _axis(width, degrees).reshape(1, 1, -1) - (width - 1) / 2
    if shift.shape[1]:
        down, right = down - shift[:, 0, None, None], right - shift[:, 1, None, None]
    angle = (degrees * (math.pi / 180))[:, None, None]
    cos, sin = angle.cos(), angle.sin()
    # Where each pixel comes from: the opposite rotation. Rows count downwards.
    return sampled(x, cos * down + sin * right + (height - 1) / 2, cos * right - sin * down + (width - 1) / 2)


def sampled(x: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """`[B, C, H, W]` the pictures at fractional rows and columns, bilinearly; black outside.

    Args:
        x: `[B, C, h, w]` the pictures.
        down: `[B, H, W]` float64 rows; differentiable.
        right: `[B, H, W]` float64 columns; differentiable.
    """
    down, right = _rounded(down), _rounded(right)
    top, left = down.detach().floor(), right.detach().floor()
    low, far = ((away).to(x).unsqueeze(1) for away in (down - top, right - left))
    made = (1 - low) * ((1 - far) * _pixels(x, top, left) + far * _pixels(x, top, left + 1)) + low * (
        (1 - far) * _pixels(x, top + 1, left) + far * _pixels(x, top + 1, left + 1)
    )
    return made.clamp(0, 1)


def _pixels(x: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """The pixels at whole rows and columns `[B, H, W]`, black outside."""
    height, width = x.shape[2:]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    number = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
    number = number.long().to(x.device).flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, number).reshape(*x.shape[:2], *row.shape[1:]) * inside.to(x).unsqueeze(1)


def _rounded(place: Tensor) -> Tensor:
    """Places rounded to a fraction of a pixel that fp32 holds exactly; the gradient passes."""
    near = (place.detach() * _STEPS).round() / _STEPS
    return place + (near - place.detach())


def _axis(side: int, like: Tensor) -> Tensor:
    return torch.arange(side, dtype=torch.float64, device=like.device)
