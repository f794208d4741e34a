"""FMN: gradient steps inside a ball whose radius shrinks after an error and otherwise grows.

Pintor, Roli, Brendel & Biggio 2021, arXiv:2102.12827, algorithm 1. Ours differs: until the first error, a step is at
least as long as the distance to the linearised boundary, the radius never shrinks, and in L2 and L1 points lie on the
surface of the ball; the projection onto the L1 ball takes the box into account; the L0 projection breaks ties, so that
no more values change than the radius allows.
Bad at: fewer than about 50 steps; L0, where sigma-zero finds sparser errors.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives.nearest import Nearest, NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._schedules import at, cosine
from .._starts import first_query
from ._margins import DUAL, SHORTEST, error_margin
from ._projections import projected

_LAST_STEP = 0.01  # of the first one
_LAST_FACTOR = 0.001  # of the radius, in the last step
_FIRST_STEP = {"Linf": 10.0, "L2": 1.0, "L1": 1.0, "L0": 3.0}


@dataclass(frozen=True)
class FmnState(NearestState):
    """The state of one trial."""

    radius: Tensor  # [B] float64 radius of the ball that contains the query


@dataclass(frozen=True)
class FMN(Attack):
    """Fast minimum-norm attack.

    Args:
        steps: gradient steps per trial.
        step_size: L2 length of the first step, which falls to a hundredth along a cosine; None is 10 in Linf, 3 in L0,
            else 1. alpha in the paper.
        factor: share by which the radius shrinks after an error and otherwise grows, at first; it falls to 0.001 along
            a cosine. gamma in the paper.
    """

    _: KW_ONLY
    steps: int = 100
    step_size: float | None = None
    factor: float = 0.05

    norms = ("L2", "Linf", "L1", "L0")
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.at_least(0.0, "factor")
        self.at_least_or_none(0.0, "step_size")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 1, self.steps)

    def init(self, trials: Trials) -> FmnState:
        start = begin_nearest(trials, first_query(self.ball, trials))
        sparse = self.ball.distance(trials.x, start.query).clamp(min=1)
        return FmnState(**vars(start), radius=sparse if self.ball.norm == "L0" else torch.full_like(sparse, torch.inf))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return error_margin(logits, trials)

    def step(self, state: State, seen: Seen) -> FmnState:
        assert isinstance(state, FmnState)
        x, queries = state.trial.x, state.queries + 1
        closest = nearest(state, seen.label, self.ball)
        radius = self._radius(state, seen, closest)
        first = _FIRST_STEP[self.ball.norm] if self.step_size is None else self.step_size
        length = at(state.queries, cosine(first, first * _LAST_STEP, self.steps), x)
        slope = seen.grad.flatten(1).norm(dim=1).clamp(min=SHORTEST)
        if self.ball.norm != "L0":  # whose radius does not follow the linearised boundary
            longer = torch.maximum(length, seen.loss.abs() / slope)
            length = torch.where(closest.distance.isfinite(), length, longer)
        ascent = along(length / slope, x) * seen.grad
        point = projected(self.ball.norm, x, state.query + ascent, radius)
        if self.ball.norm in ("L2", "L1"):
            point = torch.where(along(closest.distance.isfinite(), x), point, self._pushed_out(x, point, radius))
        done = queries >= self.steps
        return FmnState(
            trial=state.trial, query=torch.where(along(done, x), closest.or_else(state.query), point), queries=queries,
            done=done, nearest=closest.point, distance=closest.distance, radius=radius,
        )  # fmt: skip

    def _pushed_out(self, x: Tensor, point: Tensor, radius: Tensor) -> Tensor:
        """The point moved to the ball's surface: inside, it could stop at a maximum of the margin that is no error."""
        stretch = (radius / self.ball.distance(x, point).clamp(min=SHORTEST)).clamp(min=1).to(x)
        return (x + along(stretch, x) * (point - x)).clamp(0, 1)

    def _radius(self, state: FmnState, seen: Seen, closest: Nearest) -> Tensor:
        x, radius = state.trial.x, state.radius
        factor = at(state.queries, cosine(self.factor, _LAST_FACTOR, self.steps), radius)
        smaller, larger = radius * (1 - factor), radius * (1 + factor)
        if self.ball.norm == "L0":  # by one value at least
            smaller, larger = torch.minimum(radius - 1, smaller.floor()), torch.maximum(radius + 1, larger.floor())
            smaller = smaller.clamp(min=1)
        else:
            # Before the first error: a little beyond the linearised boundary. With a radius that just reaches it, the
            # points would never cross the boundary of a linear classifier.
            slope = seen.grad.flatten(1).norm(p=DUAL[self.ball.norm], dim=1).clamp(min=SHORTEST)
            there = self.ball.distance(x, state.query) + seen.loss.abs() / slope
            # Nor does it shrink: the linearised boundary may be nearer than the real one where that is curved.
            grown = torch.where(radius.isfinite(), larger, 0)
            larger = torch.where(closest.distance.isfinite(), larger, torch.maximum(there * (1 + factor), grown))
        farthest = self.ball.distance(x, (x < 0.5).to(x))
        smaller = torch.minimum(smaller, closest.distance)
        return torch.minimum(torch.where(closest.error, smaller, larger), farthest)
