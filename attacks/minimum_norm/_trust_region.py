"""The step of attacks that walk along the boundary: towards the image, on the side of errors, not too far at once.

The problem is that of Brendel et al. 2019, arXiv:1907.01003, section 3. Ours differs: the side of errors is a
half-space and not its border, so that a point far inside goes straight towards the image; all rows are solved at once.
The minimum of the Lagrangian is known for each value of an image, given two multipliers: the pull of the image and the
push of the boundary. The push follows from the pull by Newton's method, the pull from the radius by bisection.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives.ball import NormName, levelled
from robustkit.primitives.rows import Rows

_TURNS = 60  # of Newton's method, which needs 2 to 6
_HALVINGS = 14  # of the pull; 3 or 4 suffice where it moves the point smoothly
_NEAR = 0.9  # of the radius: a step as long as that is long enough
_ROUNDING = 1e-3  # of the way to the boundary
_FINEST = 1e-6  # share of the push that is not worth a turn
_WIDEST = 1e3  # pull in L1 at which the radius hardly counts, in units of `far`; more would be lost in rounding


@dataclass(frozen=True)
class Region(Rows):
    """The problem of some rows. D is the number of values of an image."""

    x: Tensor  # [B, D] the image
    point: Tensor  # [B, D] where the step begins
    normal: Tensor  # [B, D] of the boundary, towards errors; its largest value is 1
    rise: Tensor  # [B] of the linear function with that normal, at least
    radius: Tensor  # [B] largest L2 length of the step
    slack: Tensor  # [B] by which the rise may be larger than it must
    far: Tensor  # [B] Linf distance from the image that no end of a step exceeds


class Ended(NamedTuple):
    """The end of a step with one push and one pull."""

    point: Tensor  # [B, D]
    rise: Tensor  # [B]
    length: Tensor  # [B] of the step
    slope: Tensor  # [B] of the rise in the push


def step_along_boundary(
    norm: NormName, x: Tensor, point: Tensor, normal: Tensor, rise: Tensor, radius: Tensor
) -> Tensor:
    """The valid point nearest to `x` in a trust region around `point`, on the far side of a hyperplane.

    Where the hyperplane is out of reach, the point of the region that is nearest to it.

    Args:
        norm: in which the point is near to `x`: "L2", "Linf", "L1" or "L0".
        x: `[B, *S]` in [0, 1].
        point: `[B, *S]` in [0, 1].
        normal: `[B, *S]` gradient of a linear function.
        rise: `[B]` by which the function must rise from `point` at least; negative where it may fall.
        radius: `[B]` of the region, in L2.

    Returns:
        `[B, *S]`; in L1 and L0 most values are exactly those of `x`.
    """
    most = normal.flatten(1).abs().amax(1).clamp(min=torch.finfo(normal.dtype).tiny)
    unit = levelled(normal).flatten(1)
    need = rise.to(unit) / most
    slack = _ROUNDING * need.abs() + 0.1 * _ROUNDING * unit.norm(dim=1) * radius.to(unit)
    region = Region(x.flatten(1), point.flatten(1), unit, need, radius.to(unit), slack, torch.ones_like(need))
    return _solved(norm, region).reshape(x.shape)


def _solved(norm: NormName, region: Region) -> Tensor:
    """Bisect the pull of the image: the strongest one at which the step is not too long."""
    none = torch.zeros_like(region.rise)
    push, least = _pushed(norm, region, none, none)
    possible = _fits(region, least)
    region = replace(region, far=(least.point - region.x).abs().amax(1))
    point = torch.where(possible.unsqueeze(1), least.point, _towards(norm, region))
    whole = _pushed(norm, region, none + 1, push)[1]
    best = possible & _fits(region, whole)
    point = torch.where(best.unsqueeze(1), whole.point, point)
    low, high, open_ = none, none + 1, possible & ~best & (least.length < _NEAR * region.radius)
    for _ in range(_HALVINGS):
        rows = open_.nonzero().flatten()
        if not len(rows):
            break
        some, pull = region.take(rows), (low[rows] + high[rows]) / 2
        pushed, ended = _pushed(norm, some, pull, push[rows])
        fits = _fits(some, ended)
        point = point.index_copy(0, rows, torch.where(fits.unsqueeze(1), ended.point, point[rows]))
        low = low.index_copy(0, rows, torch.where(fits, pull, low[rows]))
        high = high.index_copy(0, rows, torch.where(fits, high[rows], pull))
        push = push.index_copy(0, rows, torch.where(fits, pushed, push[rows]))
        open_ = open_.index_copy(0, rows, ~fits | (ended.length < _NEAR * some.radius))
    return point


def _fits(region: Region, ended: Ended) -> Tensor:
    return (ended.rise >= region.rise) & (ended.length <= region.radius)


def _pushed(norm: NormName, region: Region, pull: Tensor, push: Tensor) -> tuple[Tensor, Ended]:
    """The smallest push with which the step crosses the boundary, from a first guess of it, and the step's end."""
    low, high = torch.full_like(push, -1), torch.full_like(push, torch.inf)
    reachable = _highest(norm, region, pull) > region.rise + region.slack
    ended = best = _ended(norm, region, push, pull)
    for _ in range(_TURNS):
        across = ended.rise >= region.rise
        low, high = torch.where(across, low, push), torch.where(across, push, high)
        best = Ended(*(torch.where(across.reshape(-1, *[1] * (new.ndim - 1)), new, old)
                       for new, old in zip(ended, best, strict=True)))  # fmt: skip
        exact = across & ((ended.rise <= region.rise + region.slack) | (push == 0))
        moves = reachable & ~exact & (high - low > _FINEST * high.clamp(max=1e30))
        if not bool(moves.any()):
            break
        newton = push + (region.rise + region.slack / 2 - ended.rise) / ended.slope
        middle = torch.where(high.isinf(), 2 * push + 1, (low + high) / 2)
        inside = newton.isfinite() & (newton > low) & (newton < high)
        push = torch.where(moves, torch.where(inside, newton, middle).clamp(min=0), push)
        ended = _ended(norm, region, push, pull)
    return torch.where(high.isfinite(), high, push), best


def _highest(norm: NormName, region: Region, pull: Tensor) -> Tensor:
    """`[B]` the rise with a push that is infinite."""
    wall = (region.normal > 0).to(region.x)
    if norm == "Linf":
        width = ((1 - pull) * region.far).unsqueeze(1)
        wall = wall.clamp(region.x - width, region.x + width)
    return (region.normal * (wall - region.point)).sum(1)


def _ended(norm: NormName, region: Region, push: Tensor, pull: Tensor) -> Ended:
    """The minimum of the Lagrangian: each value alone."""
    pull = pull.unsqueeze(1)
    pushed = region.point + push.unsqueeze(1) * region.normal
    if norm == "L2":
        inner = pushed + pull * (region.x - region.point)
        end = inner.clamp(0, 1)
        free = end == inner
    elif norm == "L0":
        moved = pushed.clamp(0, 1)
        end, free = _kept(region, moved, push.unsqueeze(1), pull), moved == pushed
        free = free & (end != region.x)
    elif norm == "Linf":
        width = (1 - pull) * region.far.unsqueeze(1)
        end = pushed.clamp(region.x - width, region.x + width).clamp(0, 1)
        free = end == pushed
    else:
        width = (pull / (1 - pull)).clamp(max=_WIDEST) * region.far.unsqueeze(1)
        inner = region.x.clamp(pushed - width, pushed + width)
        end = inner.clamp(0, 1)
        free = (end == inner) & (end != region.x)
    step = end - region.point
    rise = (region.normal * step).sum(1)
    slope = (region.normal.square() * free).sum(1)
    return Ended(end, rise, step.norm(dim=1), slope)


def _kept(region: Region, moved: Tensor, push: Tensor, pull: Tensor) -> Tensor:
    """In L0 each value moves, or is that of the image, whichever costs less; the pull is the price of a change."""
    price = (pull / (1 - pull)).clamp(max=_WIDEST) * region.far.square().unsqueeze(1)
    steps = moved - region.point, region.x - region.point
    moving, resting = (step.square() / 2 - push * region.normal * step for step in steps)
    return torch.where(moving + price < resting, moved, region.x)


def _towards(norm: NormName, region: Region) -> Tensor:
    """The highest rise within the radius, nearly: values stop at the box, and the others go further."""
    none = torch.zeros_like(region.rise)
    push = region.radius / region.normal.norm(dim=1).clamp(min=1e-12)
    ended = _ended("L2", region, push, none)
    for _ in range(4):
        # Twice the push is at most twice the step, so none becomes too long.
        push = push * (region.radius / ended.length.clamp(min=1e-12)).clamp(max=1e3)
        ended = _ended("L2", region, push, none)
    return ended.point
