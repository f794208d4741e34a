"""The balls of the norms Linf, L2, L1 and L0 around an image, cut to the box of valid pixels [0, 1]."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ball import Ball, finer, levelled, unit
from robustkit.primitives.rounding import rounded_towards, wide
from robustkit.primitives.rows import along

# Values projected at once on a CPU: their float64 copies fit into its cache, in less than half the time.
_BLOCK = 8 * 3 * 32 * 32


class NormBall(Ball):
    """A ball whose distance is a norm of the difference of two images."""

    @staticmethod
    @abstractmethod
    def length(difference: Tensor) -> Tensor:
        """`[B]` norms of differences `[B, d]` in float64."""

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        return self.length(_difference(x, point))


@dataclass(frozen=True)
class Linf(NormBall):
    """Every pixel value may move by `eps`."""

    norm = "Linf"
    order = math.inf

    @staticmethod
    def length(difference: Tensor) -> Tensor:
        return difference.abs().amax(1)

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        return self._cut(x, point - x)

    def climb(self, x: Tensor, point: Tensor, grad: Tensor, length: float | Tensor) -> Tensor:
        move = grad.sign()
        if isinstance(length, Tensor):
            move.mul_(length).add_(point)
        else:
            # A sign times a number is exact, so one fused operation gives the same bits as two.
            torch.add(point, move, alpha=length, out=move)
        return self._cut(x, move.sub_(x))

    def _cut(self, x: Tensor, delta: Tensor) -> Tensor:
        # In place: for small networks, new memory costs more than all the arithmetic of a step.
        return delta.clamp_(-self.eps, self.eps).add_(x).clamp_(0, 1)

    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        return grad.sign()

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        return self._cut(x, noise.uniform(key, draw, x.shape[1:]).to(x).mul_(2).sub_(1).mul_(self.eps))

    def project_exact(self, x: Tensor, point: Tensor) -> Tensor:
        size = max(1, _BLOCK // max(1, x[:1].numel()) if x.device.type == "cpu" else len(x))
        blocks = zip(torch.split(x, size), torch.split(point, size), strict=True)
        return torch.cat([self._exact(x, self._change(x, point), self.eps).clamp_(0, 1) for x, point in blocks])

    def _change(self, x: Tensor, point: Tensor) -> Tensor:
        return wide(point) - wide(x)

    def _exact(self, clean: Tensor, change: Tensor, radius: float) -> Tensor:
        return rounded_towards(clean, change.clamp_(-radius, radius), radius)


@dataclass(frozen=True)
class L2(NormBall):
    """The Euclidean length of the change may be `eps`."""

    norm = "L2"
    order = 2.0

    @staticmethod
    def length(difference: Tensor) -> Tensor:
        return difference.square().sum(1).sqrt()

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        """The nearest point of the ball, then of the box: it lies in both, but is not always the nearest such point."""
        delta = point - x
        length = delta.flatten(1).norm(dim=1)
        scale = (self.eps / length.clamp(min=1e-12)).clamp(max=1)
        return delta.mul_(along(scale, x)).add_(x).clamp_(0, 1)

    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        return unit(grad)

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        gauss = noise.normal(key, draw, (x[0].numel() + 1,)).to(x)
        # One number at a time: torch's vectors and scalars round a power differently, so that a row's radius would
        # depend on how many rows there are.
        shares = [share ** (1 / x[0].numel()) for share in noise.uniform(finer(key), draw, ()).tolist()]
        radius = torch.tensor(shares, dtype=x.dtype, device=x.device)
        return self.project(x, x + self.eps * along(radius, x) * self.steepest(gauss[:, 1:].reshape(x.shape), x))


@dataclass(frozen=True)
class L1(NormBall):
    """The sum of all absolute changes may be `eps`."""

    norm = "L1"
    order = 1.0
    share: ClassVar[float] = 0.05  # of the values that a step moves: sparse steps suit L1, Tramer & Boneh 2019

    @staticmethod
    def length(difference: Tensor) -> Tensor:
        return difference.abs().sum(1)

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        return x + project_l1(point - x, x, torch.full((len(x),), self.eps, device=x.device, dtype=torch.float64))

    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        """Signs of the largest 5 % of those gradient values that the box allows to follow, divided by their number."""
        room = torch.where(grad > 0, point < 1, point > 0)
        size = (grad.abs() * room).flatten(1)
        count = max(1, round(self.share * size.shape[1]))
        least = size.topk(count, dim=1).values[:, -1]
        chosen = (size >= least.unsqueeze(1)) & (size > 0)
        move = chosen * grad.flatten(1).sign()
        return (move / chosen.sum(1, keepdim=True).clamp(min=1)).reshape(grad.shape)

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        # Normalised exponential variables with random signs, one more than there are values, are uniform in the ball.
        spread = -torch.log(noise.uniform(key, draw, (x[0].numel() + 1,)).to(x) + 2.0**-25)
        size = spread[:, 1:] / spread.sum(1, keepdim=True)
        return self.project(x, x + self.eps * (size * noise.signs(finer(key), draw, size.shape[1:])).reshape(x.shape))


@dataclass(frozen=True)
class L0(NormBall):
    """`eps` values (a number of pixels x channels) may change, by any amount."""

    norm = "L0"
    order = 0.0
    attacks = "sparse_rs, sigma_zero or pgd"

    @staticmethod
    def length(difference: Tensor) -> Tensor:
        return (difference != 0).sum(1).double()

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        valid = point.clamp(0, 1)
        delta = (valid - x).flatten(1)
        count = int(min(self.eps, delta.shape[1]))
        if count == 0:
            return x
        # By how much keeping a value lowers the squared distance from `point`, which may lie outside of the box: the
        # further it lies beyond, the more (Croce & Hein 2019, section 4.1).
        gain = delta.abs() * (2 * (point - x).flatten(1).abs() - delta.abs())
        chosen = torch.zeros_like(delta, dtype=torch.bool).scatter(1, gain.topk(count, dim=1).indices, True)
        return torch.where(chosen.reshape(x.shape), valid, x)

    def project_exact(self, x: Tensor, point: Tensor) -> Tensor:
        return self.project(x, point)

    def _exact(self, clean: Tensor, change: Tensor, radius: float) -> Tensor:
        return rounded_towards(clean, change, math.inf)

    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        """The gradient scaled to a mean size of 1 (Croce & Hein 2019, arXiv:1909.05040): every value may move."""
        grad = levelled(grad)
        return grad / along(grad.flatten(1).abs().mean(1).clamp(min=1e-12), grad)

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        order = noise.uniform(key, draw, x.shape[1:]).to(x)
        count = int(min(self.eps, x[0].numel()))
        if count == 0:
            return x
        chosen = torch.zeros_like(x.flatten(1), dtype=torch.bool)
        chosen = chosen.scatter(1, order.flatten(1).topk(count, dim=1).indices, True).reshape(x.shape)
        return torch.where(chosen, (noise.uniform(finer(key), draw, x.shape[1:]) >= 0.5).to(x), x)


def project_l1(delta: Tensor, x: Tensor, eps: Tensor) -> Tensor:
    """The change nearest to `delta` in the L1 ball that keeps `x + delta` in [0, 1].

    Args:
        delta: `[B, *S]` change, in units of the input.
        x: `[B, *S]` clean input in [0, 1].
        eps: `[B]` radii, same units.

    Source: Croce & Hein 2021, arXiv:2103.01208. The projection shrinks every value by one amount and clips it to the
    box. The total is piecewise linear in that amount, so Newton's method ends on the right piece after 6 to 8 turns, in
    a third of the time of their sort.
    """
    flat, clean = wide(delta).flatten(1), wide(x).flatten(1)
    room, size, radii = torch.where(flat > 0, 1 - clean, clean), flat.abs(), eps.to(flat).unsqueeze(1)
    most = size.amax(1, keepdim=True)
    low, high, shrink = torch.zeros_like(most), most, torch.zeros_like(most)
    kept = torch.minimum(size, room)
    for turn in range(200):
        excess = kept.sum(1, keepdim=True) - radii
        step = excess / ((kept > 0) & (kept < room)).sum(1, keepdim=True)
        # A row that has converged does not move, however many turns the other rows need.
        moves = (step.abs() > 1e-15 * most) & ((excess > 0) | (shrink > 0))
        if not bool(moves.any()):
            break
        low, high = torch.where(excess > 0, shrink, low), torch.where(excess > 0, high, shrink)
        # Bisection where Newton leaves the bracket, and at every second turn from 20 on, should it converge slowly.
        newton = (shrink + step > low) & (shrink + step < high) & (turn < 20 or turn % 2 == 0)
        shrink = torch.where(moves, torch.where(newton, shrink + step, (low + high) / 2), shrink)
        kept = torch.minimum(torch.sub(size, shrink, out=kept).clamp_(min=0), room, out=kept)
    return (flat.sign() * kept).reshape(delta.shape).to(delta)


def distances(x: Tensor, point: Tensor) -> Tensor:
    """`[4, B]` float64 distances between images in Linf, L2, L1 and L0, bit for bit those of the balls."""
    difference = _difference(x, point)
    return torch.stack([ball.length(difference) for ball in (Linf, L2, L1, L0)])


def _difference(x: Tensor, point: Tensor) -> Tensor:
    return (wide(point) - wide(x)).flatten(1)
