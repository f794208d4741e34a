"""The step of attacks that walk along the boundary: the point nearest to the image beyond it, within a trust region.

The problem is that of Brendel et al. 2019, arXiv:1907.01003, section 3. Ours differs: the step must end in the
half-space of errors, not on the hyperplane that bounds it, so that a point far inside goes straight towards the image;
all rows are solved at once.
With two Lagrange multipliers, the minimum has a closed form for each value of the image. They are called the pull
(towards the image) and the push (towards errors). For each pull, Newton's method finds the push with which the step
just crosses the boundary; bisection finds the largest pull with which the step stays in the trust region.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives.ball import NormName, levelled
from robustkit.primitives.rows import Rows

_TURNS = 60  # most iterations of Newton's method, which needs 2 to 6
_HALVINGS = 14  # most bisections of the pull; 3 or 4 suffice where it moves the point smoothly
_NEAR = 0.9  # share of the radius: bisection ends when the step is at least as long
_ROUNDING = 1e-3  # tolerance of the rise, as a share of the rise that is needed
_FINEST = 1e-6  # relative width of the interval of the push at which Newton's method ends
_WIDEST = 1e3  # largest threshold in L1 and L0, in units of `far` or its square; more would be lost in rounding


@dataclass(frozen=True)
class Region(Rows):
    """The problem of each row. D is the number of values of an image."""

    x: Tensor  # [B, D] the image
    point: Tensor  # [B, D] where the step begins
    normal: Tensor  # [B, D] normal of the boundary, towards errors; its largest absolute value is 1
    rise: Tensor  # [B] least rise along the step of the linear function with that normal
    radius: Tensor  # [B] largest L2 length of the step
    slack: Tensor  # [B] how much more than the least rise is accepted
    far: Tensor  # [B] largest Linf distance of the end from the image


class TrialStep(NamedTuple):
    """The step with a given push and pull."""

    point: Tensor  # [B, D] its end
    rise: Tensor  # [B] of the linear function
    length: Tensor  # [B] L2 length
    slope: Tensor  # [B] derivative of the rise with respect to the push


def step_along_boundary(
    norm: NormName, x: Tensor, point: Tensor, normal: Tensor, rise: Tensor, radius: Tensor
) -> Tensor:
    """The valid point nearest to `x` in a trust region around `point`, on the far side of a hyperplane.

    Where the hyperplane is out of reach, the point of the region that is nearest to it.

    Args:
        norm: measures the distance from `x`: "L2", "Linf", "L1" or "L0".
        x: `[B, *S]` in [0, 1].
        point: `[B, *S]` in [0, 1].
        normal: `[B, *S]` gradient of a linear function.
        rise: `[B]` least rise of the function from `point`; negative where it may fall.
        radius: `[B]` L2 radius of the region.

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
    """`[B, D]` the end of the step with the largest pull at which the step fits, found by bisection."""
    none = torch.zeros_like(region.rise)
    push, least = _smallest_push(norm, region, none, none)
    possible = _fits(region, least)
    region = replace(region, far=(least.point - region.x).abs().amax(1))
    point = torch.where(possible.unsqueeze(1), least.point, _towards(norm, region))
    whole = _smallest_push(norm, region, none + 1, push)[1]
    best = possible & _fits(region, whole)
    point = torch.where(best.unsqueeze(1), whole.point, point)
    low, high, unfinished = none, none + 1, possible & ~best & (least.length < _NEAR * region.radius)
    for _ in range(_HALVINGS):
        rows = unfinished.nonzero().flatten()
        if not len(rows):
            break
        some, pull = region.take(rows), (low[rows] + high[rows]) / 2
        pushed, trial_step = _smallest_push(norm, some, pull, push[rows])
        fits = _fits(some, trial_step)
        point = point.index_copy(0, rows, torch.where(fits.unsqueeze(1), trial_step.point, point[rows]))
        low = low.index_copy(0, rows, torch.where(fits, pull, low[rows]))
        high = high.index_copy(0, rows, torch.where(fits, high[rows], pull))
        push = push.index_copy(0, rows, torch.where(fits, pushed, push[rows]))
        unfinished = unfinished.index_copy(0, rows, ~fits | (trial_step.length < _NEAR * some.radius))
    return point


def _fits(region: Region, trial_step: TrialStep) -> Tensor:
    return (trial_step.rise >= region.rise) & (trial_step.length <= region.radius)


def _smallest_push(norm: NormName, region: Region, pull: Tensor, push: Tensor) -> tuple[Tensor, TrialStep]:
    """The smallest push with which the step crosses the boundary, and that step; `push` `[B]` is a first guess."""
    low, high = torch.full_like(push, -1), torch.full_like(push, torch.inf)
    reachable = _highest(norm, region, pull) > region.rise + region.slack
    trial_step = best = _step(norm, region, push, pull)
    for _ in range(_TURNS):
        across = trial_step.rise >= region.rise
        low, high = torch.where(across, low, push), torch.where(across, push, high)
        best = TrialStep(*(torch.where(across.reshape(-1, *[1] * (new.ndim - 1)), new, old)
                       for new, old in zip(trial_step, best, strict=True)))  # fmt: skip
        exact = across & ((trial_step.rise <= region.rise + region.slack) | (push == 0))
        moves = reachable & ~exact & (high - low > _FINEST * high.clamp(max=1e30))
        if not bool(moves.any()):
            break
        newton = push + (region.rise + region.slack / 2 - trial_step.rise) / trial_step.slope
        middle = torch.where(high.isinf(), 2 * push + 1, (low + high) / 2)
        inside = newton.isfinite() & (newton > low) & (newton < high)
        push = torch.where(moves, torch.where(inside, newton, middle).clamp(min=0), push)
        trial_step = _step(norm, region, push, pull)
    return torch.where(high.isfinite(), high, push), best


def _highest(norm: NormName, region: Region, pull: Tensor) -> Tensor:
    """`[B]` the rise with an infinite push."""
    wall = (region.normal > 0).to(region.x)
    if norm == "Linf":
        width = ((1 - pull) * region.far).unsqueeze(1)
        wall = wall.clamp(region.x - width, region.x + width)
    return (region.normal * (wall - region.point)).sum(1)


def _step(norm: NormName, region: Region, push: Tensor, pull: Tensor) -> TrialStep:
    """The minimum of the Lagrangian, computed for each value alone."""
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
    return TrialStep(end, rise, step.norm(dim=1), slope)


def _kept(region: Region, moved: Tensor, push: Tensor, pull: Tensor) -> Tensor:
    """In L0 each value is the moved one or the image's, whichever costs less; a changed value costs `price` more."""
    price = (pull / (1 - pull)).clamp(max=_WIDEST) * region.far.square().unsqueeze(1)
    steps = moved - region.point, region.x - region.point
    moving, resting = (step.square() / 2 - push * region.normal * step for step in steps)
    return torch.where(moving + price < resting, moved, region.x)


def _towards(norm: NormName, region: Region) -> Tensor:
    """Nearly the highest rise within the radius: values stop at the box, and the others go further instead."""
    none = torch.zeros_like(region.rise)
    push = region.radius / region.normal.norm(dim=1).clamp(min=1e-12)
    trial_step = _step("L2", region, push, none)
    for _ in range(4):
        # The step grows at most in proportion to the push, so it never exceeds the radius.
        push = push * (region.radius / trial_step.length.clamp(min=1e-12)).clamp(max=1e3)
        trial_step = _step("L2", region, push, none)
    return trial_step.point
