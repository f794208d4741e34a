"""The windows of the Square Attack: how a point is begun and changed, one draw of its own per image.

All functions work on planes `[B, C, H, W]`; an image without channels or rows has C = 1 or H = 1.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.rows import along
from robustkit.primitives.threat import Ball

Plane = Tensor  # [B, C, H, W]

# In L2 and L1 the paper draws windows up to the last row and column, the authors' code never lets them touch these:
# blind there, but stronger where the border is empty. A quarter of the others' chance costs next to nothing and sees
# every pixel. TRADES on MNIST, L2, 300 queries, per cent left with chances of 0, 1/4 and 1: 57.8, 58.6 and 62.0.
_SELDOM = 0.25


def plane(x: Tensor) -> Plane:
    """Any `[B, *S]` seen as `[B, C, H, W]`."""
    shape = (1,) * max(0, 3 - (x.dim() - 1)) + tuple(x.shape[1:])
    return x.reshape(len(x), -1, *shape[-2:])


def stripes(x: Plane, key: Tensor, ball: Ball) -> Plane:
    """Vertical stripes of plus and minus eps: the Linf start."""
    sign = noise.signs(key, 0, (x.shape[1], 1, x.shape[3])).to(x)
    return ball.project(x, x + ball.eps * sign)


def lumps(x: Plane, key: Tensor, ball: Ball) -> Plane:
    """Five by five lumps around the middle, each of random sign and lying or standing: the start for L2 and L1.

    The margin that the authors' code leaves matters: on MNIST, lumps from edge to edge broke 10 % fewer images.
    """
    _, channels, height, width = x.shape
    tall, wide = max(height // 5, 1), max(width // 5, 1)
    rows, columns = height // tall, width // wide
    top, left = max((height - 5 * tall) // 2, 0), max((width - 5 * wide) // 2, 0)
    coins = noise.signs(key, 0, (channels + 1, rows, columns)).to(x)
    coins = coins.repeat_interleave(tall, 2).repeat_interleave(wide, 3)
    lying = lump(tall, wide).to(x).repeat(rows, columns)
    standing = lump(wide, tall).to(x).T.repeat(rows, columns)
    grid = coins[:, :-1] * torch.where(coins[:, -1:] > 0, lying, standing)
    grid = grid[:, :, : height - top, : width - left]
    margins = (left, width - left - grid.shape[3], top, height - top - grid.shape[2])
    return _onto_surface(x, torch.nn.functional.pad(grid, margins), ball)


@dataclass(frozen=True)
class Proposal:
    """One change of the best points, row by row."""

    x: Plane
    best: Plane
    key: Tensor  # [B]
    draw: Tensor  # [B] int64
    side: Tensor  # [B] int64

    def of(self, ball: Ball) -> Plane:
        """The next query in this ball."""
        return self._recolour(ball) if ball.norm == "Linf" else self._carry(ball)

    def _recolour(self, ball: Ball) -> Plane:
        """A window takes the colour plus or minus eps, one sign per channel."""
        inside, _, _ = self._window(0)
        return torch.where(inside, ball.project(self.x, self.x + ball.eps * self._signs()), self.best)

    def _carry(self, ball: Ball) -> Plane:
        """A second window's change is carried into the first, which gets a lump of random sign besides."""
        inside, row, column = self._window(0, _SELDOM)
        other, _, _ = self._window(2, _SELDOM)
        delta = self.best - self.x
        kept = torch.where(inside, delta, 0)
        fresh = self._lumps(row, column) * self._signs() + kept / _length(kept, ball).clamp(min=1e-12)
        fresh = torch.where(inside, fresh, 0)
        fresh = fresh / _length(fresh, ball).clamp(min=1e-12) * self._allowance(delta, inside | other, ball)
        return _onto_surface(self.x, torch.where(inside, fresh, torch.where(other, 0, delta)), ball)

    def _allowance(self, delta: Plane, windows: Tensor, ball: Ball) -> Tensor:
        """`[B, 1, 1, 1]`: how long each channel's new window may be: a share of what is unused, and what they had."""
        power = 2 if ball.norm == "L2" else 1
        channels = delta.shape[1]
        whole = along(delta.abs().pow(power).flatten(1).sum(1), delta)
        freed = along(torch.where(windows, delta, 0).abs().pow(power).flatten(1).sum(1), delta)
        unused = (ball.eps**power - whole).clamp(min=0) / channels
        return (unused + freed).pow(1 / power)

    def _window(self, number: int, last: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """Where a random window lies `[B, 1, H, W]`, and the offsets `[B, 1, H, 1]`, `[B, 1, 1, W]` from its corner.

        The places at the end of each side have the chance `last` of any other.
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

    def _lumps(self, row: Tensor, column: Tensor) -> Tensor:
        """`[B, 1, H, W]` one lump per row of the batch, of its own side, lying or standing by the toss of a coin."""
        sides = sorted(set(self.side.tolist()))
        most = max(sides)
        table = torch.stack(
            [torch.nn.functional.pad(lump(side, side), (0, most - side, 0, most - side)) for side in sides]
        )
        which = torch.searchsorted(torch.tensor(sides, device=self.x.device), self.side)
        coin = along(noise.signs(self.key, 2 * self.draw + 1, (1,)).squeeze(1) > 0, self.x)
        row, column = row.clamp(0, most - 1), column.clamp(0, most - 1)
        first, second = torch.where(coin, row, column), torch.where(coin, column, row)
        return table.to(self.x)[along(which, self.x), first, second]


@cache
def lump(tall: int, wide: int) -> Tensor:
    """`[tall, wide]` of Euclidean length 1: a pyramid above, its negative below (eta of the paper)."""
    upper = tall // 2
    halves = torch.cat([_pyramid(upper, wide), -_pyramid(tall - upper, wide)])
    length: Tensor = torch.linalg.vector_norm(halves)
    return halves / length


def _pyramid(tall: int, wide: int) -> Tensor:
    """Nested rectangles, the n-th adding 1 / n^2, scaled to length 1; `[0, wide]` where there is no room."""
    heap = torch.zeros(tall, wide, device="cpu")
    middle, centre = tall // 2, wide // 2
    for ring in range(max(tall // 2 + 1, wide // 2 + 1)):
        top, left = max(middle - ring, 0), max(centre - ring, 0)
        heap[top : middle + ring + 1, left : centre + ring + 1] += 1 / (ring + 1) ** 2
    return heap / heap.norm() if tall else heap


def _length(delta: Plane, ball: Ball) -> Tensor:
    """`[B, C, 1, 1]` length of each channel in the ball's norm."""
    if ball.norm == "L2":
        return delta.square().sum((2, 3), keepdim=True).sqrt()
    return delta.abs().sum((2, 3), keepdim=True)


def _onto_surface(x: Plane, delta: Plane, ball: Ball) -> Plane:
    """The change scaled up to length eps if it is shorter, then projected."""
    length = along(ball.distance(torch.zeros_like(x), delta).clamp(min=1e-12).to(x), x)
    return ball.project(x, x + delta * (ball.eps / length).clamp(min=1.0 if ball.norm == "L1" else 0.0))
