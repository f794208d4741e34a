"""The start points and random windows of the Square Attack; each image has its own random draws.

All functions take planes `[B, C, H, W]`; an image without channels or rows has C = 1 or H = 1.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ball import Ball, NormName
from robustkit.primitives.rows import along

from .._planes import Plane

# In L2 and L1 the paper's windows may reach the last row and column; those of the authors' code never do, which is
# stronger where the border is empty, but never changes those pixels. With a quarter of the probability of the other
# places, every pixel is reached at almost no cost. Robust accuracy of TRADES on MNIST in L2 after 300 queries, with
# relative probabilities of 0, 1/4 and 1: 57.8 %, 58.6 % and 62.0 %.
_LAST_PLACE = 0.25

# The height of the n-th nested rectangle of a pattern is 1 / n to this power. The paper on L2 gives 2; for L1 the
# authors' code has 4, which makes a pattern almost a single peak.
_FALL = {"L2": 2, "L1": 4}


def stripes(x: Plane, key: Tensor, ball: Ball) -> Plane:
    """Vertical stripes of plus and minus eps: the start point for Linf."""
    sign = noise.signs(key, 0, (x.shape[1], 1, x.shape[3])).to(x)
    return ball.project(x, x + ball.eps * sign)


def centred_patterns(x: Plane, key: Tensor, ball: Ball) -> Plane:
    """Five by five patterns around the middle, each of random sign and orientation: the start point for L2 and L1.

    As in the authors' code, the borders stay unchanged: on MNIST, patterns from edge to edge broke 10 % fewer images.
    """
    _, channels, height, width = x.shape
    tall, wide = max(height // 5, 1), max(width // 5, 1)
    rows, columns = height // tall, width // wide
    top, left = max((height - 5 * tall) // 2, 0), max((width - 5 * wide) // 2, 0)
    coins = noise.signs(key, 0, (channels + 1, rows, columns)).to(x)
    coins = coins.repeat_interleave(tall, 2).repeat_interleave(wide, 3)
    lying, standing = (each.to(x).repeat(rows, columns) for each in oriented(tall, wide, ball.norm))
    grid = coins[:, :-1] * torch.where(coins[:, -1:] > 0, lying, standing)
    grid = grid[:, :, : height - top, : width - left]
    margins = (left, width - left - grid.shape[3], top, height - top - grid.shape[2])
    return _onto_surface(x, torch.nn.functional.pad(grid, margins), ball)


@dataclass(frozen=True)
class Proposal:
    """One random change of each row's best point."""

    x: Plane
    best: Plane
    key: Tensor  # [B] int64 noise stream
    draw: Tensor  # [B] int64 number of the draw
    side: Tensor  # [B] int64 side of the windows

    def of(self, ball: Ball) -> Plane:
        """The next query of the attack in this ball."""
        return self._linf_proposal(ball) if ball.norm == "Linf" else self._l2_l1_proposal(ball)

    def _linf_proposal(self, ball: Ball) -> Plane:
        """A window changes by plus or minus eps, one sign per channel."""
        inside, _, _ = self._window(0)
        return torch.where(inside, ball.project(self.x, self.x + ball.eps * self._signs()), self.best)

    def _l2_l1_proposal(self, ball: Ball) -> Plane:
        """The budget of a second window moves into the first, to which a pattern of random sign is added."""
        inside, row, column = self._window(0, _LAST_PLACE)
        other, _, _ = self._window(2, _LAST_PLACE)
        delta = self.best - self.x
        old = torch.where(inside, delta, 0)
        new = self._patterns(row, column, ball.norm) * self._signs() + old / _length(old, ball).clamp(min=1e-12)
        new = torch.where(inside, new, 0)
        new = new / _length(new, ball).clamp(min=1e-12) * self._budget(delta, inside | other, ball)
        return _onto_surface(self.x, torch.where(inside, new, torch.where(other, 0, delta)), ball)

    def _budget(self, delta: Plane, windows: Tensor, ball: Ball) -> Tensor:
        """`[B, C, 1, 1]` length of each channel's new window: its share of the unused budget plus the old length.

        In L1 this is multiplied by the number of channels, as in the authors' code: the projection then shrinks all
        values by the same amount, and the result is sparse.
        """
        power, channels = 2 if ball.norm == "L2" else 1, delta.shape[1]
        size = delta.abs().pow(power)
        unused = (ball.eps**power - along(size.flatten(1).sum(1), size)).clamp(min=0) / channels
        freed = torch.where(windows, size, 0).sum((2, 3), keepdim=True)
        return (unused + freed).sqrt() if ball.norm == "L2" else (unused + freed) * channels

    def _window(self, number: int, last: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """The mask `[B, 1, H, W]` of a random window, and the offsets `[B, 1, H, 1]`, `[B, 1, 1, W]` from its corner.

        The last place in each direction has `last` times the probability of any other.
        """
        height, width = self.x.shape[-2:]
        tall, wide = self.side.clamp(max=height), self.side.clamp(max=width)
        place = noise.uniform(self.key, 2 * self.draw, (4,))[:, number : number + 2].to(self.x)
        top = (place[:, 0] * (height - tall + last)).long()
        left = (place[:, 1] * (width - wide + last)).long()
        row = torch.arange(height, device=self.x.device).reshape(1, 1, -1, 1) - along(top, self.x)
        column = torch.arange(width, device=self.x.device).reshape(1, 1, 1, -1) - along(left, self.x)
        inside = (row >= 0) & (row < along(tall, self.x)) & (column >= 0) & (column < along(wide, self.x))
        return inside, row, column

    def _signs(self) -> Tensor:
        return noise.signs(self.key, 2 * self.draw + 1, (self.x.shape[1] + 1, 1, 1)).to(self.x)[:, 1:]

    def _patterns(self, row: Tensor, column: Tensor, norm: NormName) -> Tensor:
        """`[B, 1, H, W]` one pattern per row of the batch, as large as its window and of random orientation."""
        height, width = self.x.shape[-2:]
        sides = sorted(set(self.side.tolist()))
        tall, wide = min(sides[-1], height), min(sides[-1], width)
        table = torch.zeros(len(sides), 2, tall, wide, device="cpu")
        for number, side in enumerate(sides):
            for turn, each in enumerate(oriented(min(side, height), min(side, width), norm)):
                table[number, turn, : each.shape[0], : each.shape[1]] = each
        which = torch.searchsorted(torch.tensor(sides, device=self.x.device), self.side)
        coin = noise.signs(self.key, 2 * self.draw + 1, (1,)).squeeze(1) < 0
        which, turned = along(which, self.x), along(coin.long(), self.x)
        return table.to(self.x)[which, turned, row.clamp(0, tall - 1), column.clamp(0, wide - 1)]


def oriented(tall: int, wide: int, norm: NormName) -> tuple[Tensor, Tensor]:
    """`[tall, wide]` patterns of both orientations: cut into an upper and a lower half, and into a left and a right."""
    return pattern(tall, wide, norm), pattern(wide, tall, norm).T


@cache
def pattern(tall: int, wide: int, norm: NormName) -> Tensor:
    """`[tall, wide]` of length 1 in the norm: a positive pyramid above a negative one (eta of the paper)."""
    upper = tall // 2
    return _of_length_one(torch.cat([_pyramid(upper, wide, norm), -_pyramid(tall - upper, wide, norm)]), norm)


def _pyramid(tall: int, wide: int, norm: NormName) -> Tensor:
    """The sum of nested rectangles, scaled to length 1; `[0, wide]` where there is no room."""
    levels = torch.zeros(tall, wide, device="cpu")
    middle, centre = tall // 2, wide // 2
    for ring in range(max(tall // 2 + 1, wide // 2 + 1)):
        top, left = max(middle - ring, 0), max(centre - ring, 0)
        levels[top : middle + ring + 1, left : centre + ring + 1] += 1 / (ring + 1) ** _FALL[norm]
    return _of_length_one(levels, norm) if tall else levels


def _of_length_one(values: Tensor, norm: NormName) -> Tensor:
    return values / (values.norm() if norm == "L2" else values.abs().sum())


def _length(delta: Plane, ball: Ball) -> Tensor:
    """`[B, C, 1, 1]` length of each channel in the ball's norm."""
    if ball.norm == "L2":
        return delta.square().sum((2, 3), keepdim=True).sqrt()
    return delta.abs().sum((2, 3), keepdim=True)


def _onto_surface(x: Plane, delta: Plane, ball: Ball) -> Plane:
    """`x + delta` projected onto ball and box; in L2, `delta` is first scaled to length eps."""
    if ball.norm == "L1":
        return ball.project(x, x + delta)
    length = along(ball.distance(torch.zeros_like(x), delta).clamp(min=1e-12).to(x), x)
    return ball.project(x, x + delta * (ball.eps / length))
