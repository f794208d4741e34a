"""sigma-zero: Adam on the margin and a smooth count of the changed values; each step then drops small changes.

Cinà, Villani, Pintor, Schönherr, Biggio & Pelillo 2025, arXiv:2402.01879, algorithm 1. Ours differs: a trial can aim at
a class.
Bad at: fewer than about 100 steps.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives.ball import levelled
from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._adam import Moments, adam, at_rest
from .._schedules import at, cosine
from .._starts import first_query
from ._margins import error_margin

_LAST_STEP = 0.1  # of the first one


@dataclass(frozen=True)
class SigmaZeroState(NearestState):
    """The state of one trial."""

    moments: Moments
    threshold: Tensor  # [B] size below which a change is dropped


@dataclass(frozen=True)
class SigmaZero(Attack):
    """sigma-zero in L0.

    Args:
        steps: gradient steps per trial.
        step_size: first step size of Adam; it falls to a tenth along a cosine. eta in the paper.
        smoothing: a change d counts as d^2 / (d^2 + smoothing); sigma in the paper.
        threshold: at first, changes smaller than this are dropped; tau in the paper.
        factor: how much the threshold rises after an error and otherwise falls, in units of the step size; t in the
            paper.
    """

    _: KW_ONLY
    steps: int = 1000
    step_size: float = 1.0
    smoothing: float = 1e-3
    threshold: float = 0.3
    factor: float = 0.01

    norms = ("L0",)
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.at_least(0.0, "threshold", "factor")
        self.positive("step_size", "smoothing")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 1, self.steps)

    def init(self, trials: Trials) -> SigmaZeroState:
        start = begin_nearest(trials, first_query(self.ball, trials))
        threshold = torch.full_like(start.distance, self.threshold).to(trials.x)
        return SigmaZeroState(**vars(start), moments=at_rest(trials.x), threshold=threshold)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return error_margin(logits, trials)

    def step(self, state: State, seen: Seen) -> SigmaZeroState:
        assert isinstance(state, SigmaZeroState)
        x, queries = state.trial.x, state.queries + 1
        closest = nearest(state, seen.label, self.ball)
        slope = levelled(self._count_slope(state.query - x) - along(seen.loss < 0, x) * seen.grad)
        descent = adam(state.moments, slope, state.queries, self.steps)
        schedule = cosine(self.step_size, self.step_size * _LAST_STEP, self.steps)
        # The step size of the previous step, as in adv-lib; the authors' code is one step ahead.
        length = at((state.queries - 1).clamp(min=0), schedule, x)
        moved = (state.query - along(length, x) * descent.direction).clamp(0, 1)

        change = self.factor * at(state.queries, schedule, x)
        threshold = (state.threshold + torch.where(closest.error, change, -change)).clamp(0, 1)
        point = torch.where((moved - x).abs() < along(threshold, x), x, moved)
        done = queries >= self.steps
        return SigmaZeroState(
            trial=state.trial, query=torch.where(along(done, x), closest.or_else(state.query), point), queries=queries,
            done=done, nearest=closest.point, distance=closest.distance, moments=descent.moments, threshold=threshold,
        )  # fmt: skip

    def _count_slope(self, change: Tensor) -> Tensor:
        """The gradient of the smooth count, divided by the number of values."""
        square = change * change
        root = square + self.smoothing
        return 2 * self.smoothing * change / (root * root) / change[0].numel()
