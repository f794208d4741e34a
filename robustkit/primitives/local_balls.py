"""Threat models that confine a change to a part of the image: a square patch anywhere, or a frame along the border.

Inside, every value is free in [0, 1]. The radius is a number of pixels.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.ball import Ball, finer
from robustkit.primitives.rounding import rounded_towards, wide
from robustkit.primitives.windows import over_pixels, pixels, window, window_sums


@dataclass(frozen=True)
class _LocalBall(Ball):
    """Base of balls in which the values of some pixels are free and all others fixed."""

    order = math.inf  # how far values move inside

    def check(self, shape: Sequence[int]) -> None:
        if len(shape) < 2:
            raise UserError(
                f"A {self.norm} is a part of an image; inputs of shape {list(shape)} have no height and width."
            )

    @abstractmethod
    def inside(self, x: Tensor, worth: Tensor) -> Tensor:
        """Bool, broadcast over `x` `[B, ..., H, W]`: the pixels that may change where `[B, H, W]` says their worth."""

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        """The nearest point of the ball."""
        point = point.clamp(0, 1)
        return torch.where(self.inside(x, pixels((wide(point) - wide(x)).square())), point, x)

    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        return grad.sign() * self.inside(grad, pixels(grad.abs()))

    def project_exact(self, x: Tensor, point: Tensor) -> Tensor:
        return self.project(x, point)

    def _exact(self, clean: Tensor, change: Tensor, radius: float) -> Tensor:
        return rounded_towards(clean, change, math.inf)


class Patch(_LocalBall):
    """The pixels of one square may change, which may lie anywhere; `eps` is its side."""

    norm = "patch"
    attacks = "patch_search:targets=9 and sparse_rs"

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        """The side of the smallest square that holds every changed pixel."""
        changed = _changed(x, point)
        return torch.maximum(_extent(changed.any(2)), _extent(changed.any(1))).double()

    def sides(self, x: Tensor) -> "Sides":
        """Height and width of the window that changes."""
        return Sides(*(int(min(self.eps, side)) for side in x.shape[-2:]))

    def inside(self, x: Tensor, worth: Tensor) -> Tensor:
        """The window of the largest worth; of equal ones the first that holds all that has any."""
        tall, wide = self.sides(x)
        # Sums of squares may round a small change away, so a change that fits into one window decides by its place.
        rows, columns = (worth > 0).any(2), (worth > 0).any(1)
        fits = (_extent(rows) <= tall) & (_extent(columns) <= wide)
        places = window_sums(worth, tall, wide)
        best = places.flatten(1).argmax(1)
        row, column = best // places.shape[2], best % places.shape[2]
        row = torch.where(fits, _first(rows).clamp(max=places.shape[1] - 1), row)
        column = torch.where(fits, _first(columns).clamp(max=places.shape[2] - 1), column)
        return window(row, column, tall, wide, x)

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        tall, wide = self.sides(x)
        row, column = random_place(x, tall, wide, key, draw)
        return torch.where(window(row, column, tall, wide, x), noise.uniform(key, draw, x.shape[1:]).to(x), x)


class Frame(_LocalBall):
    """The pixels along the border may change; `eps` is the width of the frame."""

    norm = "frame"
    attacks = "apgd, pgd, soft_apgd and sparse_rs"

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        """How deep the deepest changed pixel lies: 1 for the border itself."""
        return (_changed(x, point) * _depth(x)).flatten(1).amax(1).double()

    def pixels(self, x: Tensor) -> Tensor:
        """`[H, W]` bool, the frame of images like `x`."""
        return _depth(x) <= self.eps

    def inside(self, x: Tensor, worth: Tensor) -> Tensor:
        return over_pixels(self.pixels(x), x)

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        return torch.where(over_pixels(self.pixels(x), x), noise.uniform(key, draw, x.shape[1:]).to(x), x)


class Sides(NamedTuple):
    """Height and width in pixels."""

    tall: int
    wide: int


class Place(NamedTuple):
    """Upper left corners of windows, `[B]` int64 each."""

    row: Tensor
    column: Tensor


def random_place(x: Tensor, tall: int, wide: int, key: Tensor, draw: Tensor | int) -> Place:
    """Where windows lie in images `[B, ..., H, W]`: every place is equally likely."""
    spots = noise.uniform(finer(key), draw, (2,)).double()
    rooms = torch.tensor([x.shape[-2] - tall + 1, x.shape[-1] - wide + 1], device=x.device)
    return Place(*(spots * rooms).long().unbind(1))


def _changed(x: Tensor, point: Tensor) -> Tensor:
    """`[B, H, W]` whether any value of a pixel differs."""
    return (x != point).reshape(len(x), -1, *x.shape[-2:]).any(1)


def _first(marked: Tensor) -> Tensor:
    """`[B]` the place of the first true value of `[B, n]`; 0 where there is none."""
    return marked.byte().argmax(1)


def _extent(marked: Tensor) -> Tensor:
    """`[B]` how many places the true values of `[B, n]` span; 0 where there is none."""
    last = marked.shape[1] - _first(marked.flip(1))
    return torch.where(marked.any(1), last - _first(marked), 0)


def _depth(x: Tensor) -> Tensor:
    """`[H, W]` how deep a pixel lies: 1 at the border."""
    row, column = (torch.arange(1, side + 1, device=x.device) for side in x.shape[-2:])
    return torch.minimum(torch.minimum(row, row.flip(0)).unsqueeze(1), torch.minimum(column, column.flip(0)))
