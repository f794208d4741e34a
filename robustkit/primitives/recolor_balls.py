"""Threat models that move every colour to another one by a function, the same at every pixel (functional threats).

Laidlaw & Feizi 2019, arXiv:1906.00001: the function is given at the points of a grid of colours, in CIELUV or RGB, and
interpolated linearly in between; no channel moves by more than the radius before colours that RGB does not have are cut
to it, which moves those next to black much further. Constants are those of the authors' code.
Ours differs: what is added to the image is the difference of two colours, so that a zero changes no bit; colours
outside of the grid are moved as those at its border; next to black, where CIELUV is singular, chromaticities are cut
to those of real colours.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.rendered import Rendered
from robustkit.primitives.rounding import wide

_GREY = (32,)  # points of the grid of grey levels
# IEC 61966-2-1: linear red, green and blue to X, Y and Z.
_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9504))
_DARK = (6 / 29) ** 3  # luminance below which lightness is linear in it
_LEAST = 1e-3  # lightness at which colours next to black are turned
_REAL = (0.0, 0.02)  # least u' and v' of real colours, roughly
_BRIGHTEST = 1.1  # of X, Y and Z


@dataclass(frozen=True)
class Recolor(Rendered):
    """Every colour moves by at most `eps` in each channel of CIELUV, scaled to [0, 1]; grey levels in their own scale.

    The parameters `[C, *grid]` are how far each colour of the grid moves in each channel.
    """

    norm = "recolor"
    attacks = "recoloradv, pgd or noise"
    largest = 1.0
    measure = "of the range of a channel"
    grid: ClassVar[tuple[int, ...]] = (16, 32, 32)

    def check(self, shape: Sequence[int]) -> None:
        super().check(shape)
        if shape[0] not in (1, 3):
            raise UserError(
                f"The threat {self.norm} needs images with 3 channels or 1, and these have {shape[0]}; "
                "give another threat."
            )

    def unit(self, like: Tensor) -> Tensor:
        channels = like.shape[1]
        return torch.ones(channels, *(_GREY if channels == 1 else self.grid), dtype=like.dtype, device=like.device)

    def render(self, x: Tensor, query: Tensor) -> Tensor:
        clean = wide(x)
        place = clean if x.shape[1] == 1 else self.to_space(clean)
        moved = place + interpolated(wide(query), place)
        change = moved - place if x.shape[1] == 1 else self.from_space(moved) - self.from_space(place)
        return (x + change.to(x)).clamp(0, 1)

    def to_space(self, rgb: Tensor) -> Tensor:
        """`[B, 3, H, W]` the colours in the space of the grid, which lies in [0, 1]."""
        return to_luv(rgb)

    def from_space(self, values: Tensor) -> Tensor:
        """The inverse, at the nearest colours that a screen has."""
        return from_luv(values)


@dataclass(frozen=True)
class RecolorRGB(Recolor):
    """Every colour moves by at most `eps` in red, green and blue."""

    norm = "recolor_rgb"
    grid = (16, 16, 16)

    def to_space(self, rgb: Tensor) -> Tensor:
        return rgb

    def from_space(self, values: Tensor) -> Tensor:
        return values.clamp(0, 1)


def interpolated(grid: Tensor, place: Tensor) -> Tensor:
    """`[B, C, H, W]` values of a grid at colours, linearly in each channel; at the border beyond it.

    Args:
        grid: `[B, C, n1, ..., nC]`; differentiable.
        place: `[B, C, H, W]` in [0, 1].
    """
    sides = grid.shape[2:]
    values, total = grid.flatten(2), torch.zeros_like(place)
    spots = [place[:, axis].clamp(0, 1) * (side - 1) for axis, side in enumerate(sides)]
    low = [spot.detach().floor().clamp(max=side - 2) for spot, side in zip(spots, sides, strict=True)]
    for corner in itertools.product((0, 1), repeat=len(sides)):
        weight, number = torch.ones_like(spots[0]), torch.zeros_like(spots[0])
        for side, spot, floor, up in zip(sides, spots, low, corner, strict=True):
            weight = weight * ((spot - floor) if up else (1 - spot + floor))
            number = number * side + floor + up
        index = number.long().flatten(1).unsqueeze(1).expand(-1, values.shape[1], -1)
        total = total + weight.unsqueeze(1) * values.gather(2, index).reshape(place.shape)
    return total


def to_luv(rgb: Tensor) -> Tensor:
    """`[B, 3, H, W]` sRGB in [0, 1] as L* / 100, (u* + 100) / 200 and (v* + 100) / 200; float64."""
    linear = torch.where(rgb <= 0.04045, rgb / 12.92, ((rgb.clamp(min=0.04045) + 0.055) / 1.055) ** 2.4)
    x, y, z = _times(_XYZ, linear).unbind(1)
    sum_ = (x + 15 * y + 3 * z).clamp(min=1e-12)
    lightness = torch.where(y <= _DARK, (29 / 3) ** 3 * y, 116 * y.clamp(min=_DARK) ** (1 / 3) - 16)
    white_u, white_v = _white()
    u, v = 13 * lightness * (4 * x / sum_ - white_u), 13 * lightness * (9 * y / sum_ - white_v)
    return torch.stack([lightness / 100, (u + 100) / 200, (v + 100) / 200], 1)


def from_luv(luv: Tensor) -> Tensor:
    """The inverse of `to_luv`, cut to what a screen has."""
    lightness, u, v = (luv * 200 - 100).unbind(1)
    lightness = (lightness + 100) / 2
    white_u, white_v = _white()
    divisor = 13 * lightness.clamp(min=_LEAST)
    chroma_u, chroma_v = (u / divisor + white_u).clamp(min=_REAL[0]), (v / divisor + white_v).clamp(min=_REAL[1])
    y = torch.where(lightness <= 8, lightness * (3 / 29) ** 3, ((lightness.clamp(min=8) + 16) / 116) ** 3)
    x = y * 9 * chroma_u / (4 * chroma_v)
    z = y * (12 - 3 * chroma_u - 20 * chroma_v) / (4 * chroma_v)
    inverse = torch.linalg.inv(torch.tensor(_XYZ, dtype=torch.float64, device="cpu")).tolist()
    linear = _times(inverse, torch.stack([x, y, z], 1).clamp(0, _BRIGHTEST)).clamp(0, 1)
    return torch.where(
        linear <= 0.0031308, 12.92 * linear, 1.055 * linear.clamp(min=0.0031308) ** (1 / 2.4) - 0.055
    )  # fmt: skip


def _times(matrix: Sequence[Sequence[float]], values: Tensor) -> Tensor:
    """A matrix times the channels, one product after the other: no bit depends on the batch."""
    one, two, three = values.unbind(1)
    return torch.stack([a * one + b * two + c * three for a, b, c in matrix], 1)


def _white() -> tuple[float, float]:
    """The chromaticity of white, u' and v'."""
    x, y, z = (sum(row) for row in _XYZ)
    return 4 * x / (x + 15 * y + 3 * z), 9 * y / (x + 15 * y + 3 * z)
