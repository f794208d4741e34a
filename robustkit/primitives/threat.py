"""Threat models: norm balls around an image, cut to the box of valid pixels [0, 1].

One class per norm. Attacks call a ball's methods for projections, directions and random points, and need no code per
norm. `project_exact` returns the point that is judged: inside the ball in float64 arithmetic, without a tolerance.
"""

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final, Literal, get_args

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError, unknown
from robustkit.limits import shortened
from robustkit.primitives import noise
from robustkit.primitives.rounding import Bounds, inward, rounded_towards, scaled, wide
from robustkit.primitives.rows import along

NormName = Literal["Linf", "L2", "L1", "L0"]
NORMS: tuple[NormName, ...] = get_args(NormName)

MINIMUM: Final = "minimum"  # in place of a radius: how far away the nearest error is

_BLOCK = 8  # rows projected at once on a CPU: their float64 copies fit into its cache, in less than half the time


@dataclass(frozen=True)
class Ball(ABC):
    """All valid images at most `eps` away from an image; `eps` in units of pixels that lie in [0, 1].

    Points and gradients are `[B, *S]`; `x` is the clean image, inside the box.
    """

    eps: float
    norm: ClassVar[NormName]
    order: ClassVar[float]

    @abstractmethod
    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        """`[B]` float64 distances between images."""

    @abstractmethod
    def project(self, x: Tensor, point: Tensor) -> Tensor:
        """A point of the ball near `point`, up to rounding; the nearest one for Linf and L1."""

    @abstractmethod
    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        """The direction of unit length along which the loss rises most, in new memory; zero where `grad` is zero."""

    @abstractmethod
    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        """Random points of the ball, one per row, the same for the same `key` and `draw`."""

    def climb(self, x: Tensor, point: Tensor, grad: Tensor, length: float | Tensor) -> Tensor:
        """The projected end of a step of `length` from `point` along the steepest direction."""
        return self.project(x, self.steepest(grad, point).mul_(length).add_(point))

    def contains(self, x: Tensor, point: Tensor) -> Tensor:
        """`[B]`: whether a point lies in ball and box, up to the rounding of an fp32 projection."""
        near = self.distance(x, point) <= self.eps * (1 + 1e-5) + 1e-7
        return near & ((point >= 0) & (point <= 1)).flatten(1).all(1)

    def project_exact(self, x: Tensor, point: Tensor) -> Tensor:
        """The point that is judged: its exact distance is at most `eps`, and it lies in the box."""
        return self._exact(x, self._change(x, point), self.eps).clamp_(0, 1)

    def project_exact_around(self, original: Tensor, bounds: Bounds, x: Tensor, point: Tensor) -> Tensor:
        """The judged point in the units and the type of `original`, which `x` is a scaled and rounded copy of.

        Its exact distance from `original` is at most `eps` times the range of `bounds` (in L0 `eps`). Every value lies
        in `bounds`, or is that of `original`. A value that `point` leaves as it is in `x` is left in `original`, too.
        """
        change = self._change(x, point) * (bounds[1] - bounds[0])
        near = self._exact(original, change, scaled(self.eps, bounds))
        low, high = inward(bounds, original.dtype)
        return near.clamp(original.clamp(max=low), original.clamp(min=high))

    def _change(self, x: Tensor, point: Tensor) -> Tensor:
        """float64 `[B, *S]` what leads to the projected point, up to rounding."""
        return wide(self.project(x, point)) - wide(x)

    def _exact(self, clean: Tensor, change: Tensor, radius: float) -> Tensor:
        """`clean` plus a float64 `change`, shortened to `radius`, in the type of `clean`."""
        # The factor covers the rounding of the float64 sums. Values are then rounded towards the clean image, which
        # can only shorten the change.
        length = change.flatten(1).norm(p=self.order, dim=1).clamp(min=1e-300)
        change = change * along((radius * (1 - 1e-12) / length).clamp(max=1), change)
        return rounded_towards(clean, change, change.abs())


@dataclass(frozen=True)
class Linf(Ball):
    """Every pixel value may move by `eps`."""

    norm = "Linf"
    order = math.inf

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        return _difference(x, point).abs().amax(1)

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
        size = _BLOCK if x.device.type == "cpu" else len(x)
        blocks = zip(torch.split(x, size), torch.split(point, size), strict=True)
        return torch.cat([self._exact(x, self._change(x, point), self.eps).clamp_(0, 1) for x, point in blocks])

    def _change(self, x: Tensor, point: Tensor) -> Tensor:
        return wide(point) - wide(x)

    def _exact(self, clean: Tensor, change: Tensor, radius: float) -> Tensor:
        return rounded_towards(clean, change.clamp_(-radius, radius), radius)


@dataclass(frozen=True)
class L2(Ball):
    """The Euclidean length of the change may be `eps`."""

    norm = "L2"
    order = 2.0

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        return _difference(x, point).square().sum(1).sqrt()

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        """The nearest point of the ball, then of the box: it lies in both, but is not always the nearest such point."""
        delta = point - x
        length = delta.flatten(1).norm(dim=1)
        scale = (self.eps / length.clamp(min=1e-12)).clamp(max=1)
        return delta.mul_(along(scale, x)).add_(x).clamp_(0, 1)

    def steepest(self, grad: Tensor, point: Tensor) -> Tensor:
        grad = levelled(grad)
        return grad / along(grad.flatten(1).norm(dim=1).clamp(min=1e-12), grad)

    def random(self, x: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
        gauss = noise.normal(key, draw, (x[0].numel() + 1,)).to(x)
        # One number at a time: torch's vectors and scalars round a power differently, so that a row's radius would
        # depend on how many rows there are.
        shares = [share ** (1 / x[0].numel()) for share in noise.uniform(finer(key), draw, ()).tolist()]
        radius = torch.tensor(shares, dtype=x.dtype, device=x.device)
        return self.project(x, x + self.eps * along(radius, x) * self.steepest(gauss[:, 1:].reshape(x.shape), x))


@dataclass(frozen=True)
class L1(Ball):
    """The sum of all absolute changes may be `eps`."""

    norm = "L1"
    order = 1.0
    share: ClassVar[float] = 0.05  # of the values that a step moves: sparse steps suit L1, Tramer & Boneh 2019

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        return _difference(x, point).abs().sum(1)

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
class L0(Ball):
    """`eps` values (a number of pixels x channels) may change, by any amount."""

    norm = "L0"
    order = 0.0

    def distance(self, x: Tensor, point: Tensor) -> Tensor:
        return (x != point).flatten(1).sum(1).double()

    def project(self, x: Tensor, point: Tensor) -> Tensor:
        delta = (point.clamp(0, 1) - x).flatten(1)
        count = int(min(self.eps, delta.shape[1]))
        if count == 0:
            return x
        kept = delta.abs().topk(count, dim=1).indices
        chosen = torch.zeros_like(delta, dtype=torch.bool).scatter(1, kept, True)
        return torch.where(chosen.reshape(x.shape), point.clamp(0, 1), x)

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


# What `Fraction` accepts, in ASCII; nan and inf are among the words that it refuses.
_NUMBER = re.compile(r"[+-]?([0-9]+(/[0-9]+)?|([0-9]+\.[0-9]*|\.?[0-9]+)([eE](?P<exponent>[+-]?[0-9]{1,9}))?)")
_BALLS: dict[str, type[Ball]] = {"Linf": Linf, "L2": L2, "L1": L1, "L0": L0}


def ball(norm: str, eps: float | str | Fraction) -> Ball:
    """The ball of a norm's name and a radius; `eps` may be a text such as "8/255".

    Raises:
        UserError: an unknown norm, or a radius that is negative, not a number or in the wrong unit.
    """
    return _BALLS[norm_name(norm)](radius(norm_name(norm), eps))


def norm_name(text: str) -> NormName:
    """`"linf"`, `"l2"`, ... in any case, as the field writes it."""
    for name in NORMS:
        if text.lower() == name.lower():
            return name
    raise unknown("norm", text, NORMS)


def radius(norm: NormName, eps: float | str | Fraction) -> float:
    """The radius as a number, checked: texts are exact fractions ("8/255"), Linf radii at most 1.

    The text "minimum" is infinity: the ball holds every image, and the distance of the nearest error is what counts.
    """
    if is_minimum(eps):
        return math.inf
    try:
        value = float(exact(eps)) if isinstance(eps, str) else float(eps)
    except OverflowError:
        raise UserError("A radius must be a number that a float can hold; check eps.") from None
    if not math.isfinite(value) or value < 0:
        raise UserError(f"A radius must be zero or more and finite; eps is {eps}.")
    if value > 1e9:
        raise UserError(f"A radius of {eps} holds every image there is; check its unit.")
    if norm == "Linf" and value > 1:
        hint = f"did you mean {eps}/255?" if value <= 255 else "divide by the range of your pixels."
        raise UserError(f"Linf radii are in units of pixels that lie in [0, 1], so eps is at most 1, not {eps}; {hint}")
    if norm == "L0" and value != int(value):
        raise UserError(f"An L0 radius counts changed values, so eps must be a whole number, not {eps}.")
    return value


def is_minimum(eps: float | str | Fraction) -> bool:
    """Whether a radius asks for the distance of the nearest error."""
    return isinstance(eps, str) and eps.strip().lower() == MINIMUM


def exact(text: str) -> Fraction:
    """The number that a text such as "8/255", "0.5" or "1e-3" stands for.

    Raises:
        UserError: it is no such text, or has more digits than any radius needs.
    """
    parts = _NUMBER.fullmatch(text.strip())
    if parts is None or len(text) > limits.DIGITS or abs(int(parts["exponent"] or 0)) > limits.EXPONENT:
        raise UserError(f"{shortened(text)!r} is no radius; write a number or a fraction such as 8/255.")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise UserError(f"{text!r} is no radius; write a number or a fraction such as 8/255.") from None


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


def levelled(grad: Tensor) -> Tensor:
    """Each row divided by its largest absolute value: no norm of it underflows or overflows. Zero stays zero."""
    most = grad.flatten(1).abs().amax(1).clamp(min=torch.finfo(grad.dtype).tiny)
    return grad / along(most, grad)


def finer(key: Tensor) -> Tensor:
    """The key of a second stream, for a draw that needs two independent sets of numbers."""
    return noise.finalise(key + 1)


def _difference(x: Tensor, point: Tensor) -> Tensor:
    return (wide(point) - wide(x)).flatten(1)
