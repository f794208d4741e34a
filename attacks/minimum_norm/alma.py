"""ALMA: RMSProp on the distance plus a penalty for points that are no errors, by an augmented Lagrangian method.

Rony, Granger, Pedersoli & Ben Ayed 2021, arXiv:2011.11857, algorithm 1, with the penalty P2. The penalty depends on how
far the margin is from its least value (the "lacking" margin). The margin is divided by the spread of the largest logits
(DLR), so that the scale of the logits does not matter.
Bad at: fewer than about 100 steps. The published `smoothing` is 0.5 for 100 steps; 1000 steps need 0.9.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._schedules import one_by_one
from .._starts import first_query
from ._margins import SHORTEST, error_margin

_FIRST_DISTANCE = {"L2": 0.1, "L1": 0.5}
_TOLERANCE = 1e-4  # least margin, in logits
_CHECK_EVERY = 10  # steps
_IMPROVED = 0.95  # progress is enough if the lacking margin has fallen below this share of the last check's
_STRICTER = 1.2  # factor of `bend` where progress is not enough
_LEAST_WEIGHT, _LARGEST_WEIGHT = 1e-6, 1e12
_FLOOR = 1e-8
_LONGEST, _HALVINGS = 1024, 20  # search for the first step: its longest, in units of the one without clipping; halvings


@dataclass(frozen=True)
class AlmaState(NearestState):
    """The state of one trial."""

    step_size: Tensor  # [B] of the first step
    square: Tensor  # [B, *S] moving average of squared gradients
    momentum: Tensor  # [B, *S]
    weight: Tensor  # [B] multiplier of the penalty; mu in the paper
    bend: Tensor  # [B] curvature of the penalty; rho in the paper
    checked: Tensor  # [B] lacking margin at the last check
    first_error: Tensor  # [B] int64 queries before the first error


@dataclass(frozen=True)
class ALMA(Attack):
    """Augmented Lagrangian attack in L2 or L1.

    Args:
        steps: gradient steps per trial.
        first_distance: distance of the first step's end from its start; None is 0.1 in L2 and 0.5 in L1. epsilon in the
            paper.
        last_step: the last step size as a share of the first one; it falls by one factor per step from the first error
            on.
        smoothing: share of the old value in the moving averages; alpha in the paper.
    """

    _: KW_ONLY
    steps: int = 100
    first_distance: float | None = None
    last_step: float = 0.01
    smoothing: float = 0.5

    norms = ("L2", "L1")
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.at_least_or_none(0.0, "first_distance")
        self.share("last_step")
        self.share("smoothing")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 1, self.steps)

    def init(self, trials: Trials) -> AlmaState:
        start = begin_nearest(trials, first_query(self.ball, trials))
        one = torch.ones_like(start.distance)
        return AlmaState(
            **vars(start), step_size=one, square=torch.ones_like(trials.x), momentum=torch.zeros_like(trials.x),
            weight=one, bend=one, checked=one, first_error=torch.full_like(trials.y, self.steps + 1),
        )  # fmt: skip

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B]` the margin less its least value, divided by the spread of the largest logits (DLR)."""
        margin = error_margin(logits, trials) - _TOLERANCE
        if logits.shape[1] < 3:
            return margin
        top = logits.topk(min(4, logits.shape[1]), dim=1).values
        aims = (trials.loss_target >= 0) | (trials.target >= 0)
        least = torch.where(aims, (top[:, 2] + top[:, -1]) / 2, top[:, 2])
        return margin / (top[:, 0] - least + _FLOOR)

    def step(self, state: State, seen: Seen) -> AlmaState:
        assert isinstance(state, AlmaState)
        x, queries, lacking = state.trial.x, state.queries + 1, -seen.loss.double()
        begins = state.queries == 0
        has_error = state.distance.isfinite()
        checks = ~begins & (queries % _CHECK_EVERY == 0)
        stricter = checks & ~has_error & (lacking >= _IMPROVED * state.checked)
        bend = torch.where(stricter, _STRICTER * state.bend, state.bend)
        slope = _penalty_slope(lacking, bend, state.weight)
        weight = self.smoothing * state.weight + (1 - self.smoothing) * slope
        weight = torch.where(begins, state.weight, weight.clamp(_LEAST_WEIGHT, _LARGEST_WEIGHT))

        closest = nearest(state, seen.label, self.ball)
        first_error = torch.where(closest.error & ~has_error, state.queries, state.first_error)
        change = state.query - x
        pull = _penalty_slope(lacking, bend, weight)
        descent = along((~begins).to(x), x) * _unit(self.ball.norm, change) - along(pull.to(x), x) * seen.grad
        flat = begins & (descent.flatten(1).norm(dim=1) <= 1e-6)
        descent = torch.where(along(flat, x), self._random(state), descent)
        step_size = torch.where(begins, self._first_step(state.query, descent, begins), state.step_size)

        square = self.smoothing * state.square + (1 - self.smoothing) * descent * descent
        momentum = self.smoothing * state.momentum + descent / (square.sqrt() + _FLOOR)
        length = (step_size * self._decay(state.queries, first_error)).to(x)
        point = (state.query - along(length, x) * momentum).clamp(0, 1)
        done = queries >= self.steps
        return AlmaState(
            trial=state.trial, query=torch.where(along(done, x), closest.or_else(state.query), point), queries=queries,
            done=done, nearest=closest.point, distance=closest.distance, step_size=step_size, square=square,
            momentum=momentum, weight=weight, bend=bend,
            checked=torch.where(begins | checks, lacking, state.checked), first_error=first_error,
        )  # fmt: skip

    def _first_step(self, query: Tensor, descent: Tensor, begins: Tensor) -> Tensor:
        """`[B]` the step size with which the first step, clipped to valid images, has length `first_distance`."""
        far = _FIRST_DISTANCE[self.ball.norm] if self.first_distance is None else self.first_distance
        low: Tensor = far / descent.flatten(1).norm(p=self.ball.order, dim=1).clamp(min=SHORTEST).double()
        if not bool(begins.any()):  # saves time and changes no row's value
            return low
        high = _LONGEST * low
        for _ in range(_HALVINGS):
            middle = (low * high).sqrt()
            point = (query - along(middle.to(query), query) * descent).clamp(0, 1)
            short = self.ball.distance(query, point) < far
            low, high = torch.where(short, middle, low), torch.where(short, high, middle)
        return low

    def _decay(self, queries: Tensor, first_error: Tensor) -> Tensor:
        """`[B]` the step size as a share of the first one."""
        since = (queries - first_error).clamp(min=0).double() / (self.steps - first_error).abs().clamp(min=1)
        return one_by_one(lambda share: self.last_step ** min(share, 1.0), since)

    def _random(self, state: AlmaState) -> Tensor:
        draw = noise.normal(state.trial.key, 1, state.query.shape[1:]).to(state.query)
        return draw / along(draw.flatten(1).norm(dim=1).clamp(min=SHORTEST), draw)


def _penalty_slope(lacking: Tensor, bend: Tensor, weight: Tensor) -> Tensor:
    """`[B]` the derivative of the penalty P2 with respect to the lacking margin."""
    above = weight + 2 * weight * bend * lacking + (bend * lacking).square() / 2
    below = weight / (1 - bend * lacking.clamp(max=0)).square()
    return torch.where(lacking >= 0, above, below)


def _unit(norm: str, change: Tensor) -> Tensor:
    """The gradient of the distance."""
    if norm == "L1":
        return change.sign()
    return change / along(change.flatten(1).norm(dim=1).clamp(min=SHORTEST), change)
