"""DDN: gradient steps turn the perturbation, while its norm shrinks after an error and grows otherwise.

Rony et al. 2019, arXiv:1811.09600, algorithm 1. Ours differs: the loss is log-odds, whose gradient has the direction of
cross-entropy's and does not vanish; images are rounded to a number of colour levels only if `levels` is given.
Bad at: fewer than about 50 steps, because each changes the norm by 5 %.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ascent import LossAttack
from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along, surely_none

from .._schedules import at, cosine
from .._starts import first_query

_LAST_STEP = 0.01  # of the first one


@dataclass(frozen=True)
class DdnState(NearestState):
    """The state of one trial."""

    radius: Tensor  # [B] norm of the perturbation


@dataclass(frozen=True)
class DDN(LossAttack):
    """Decoupled direction and norm attack in L2.

    Args:
        steps: gradient steps per trial.
        radius: norm of the perturbation before the first step changes it.
        step_size: length of the first step; it falls to a hundredth along a cosine. alpha in the paper.
        factor: share by which the norm shrinks after an error and grows otherwise; gamma in the paper.
        levels: number of values that a pixel can have, such as 256; None for any value.
    """

    _: KW_ONLY
    steps: int = 100
    radius: float = 1.0
    step_size: float = 1.0
    factor: float = 0.05
    levels: int | None = None

    norms = ("L2",)
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.at_least(0.0, "factor")
        self.positive("radius", "step_size")
        self.at_least_or_none(2, "levels")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 1, self.steps)

    def init(self, trials: Trials) -> DdnState:
        start = begin_nearest(trials, first_query(self.ball, trials))
        return DdnState(**vars(start), radius=torch.full_like(start.distance, self.radius).to(trials.x))

    def step(self, state: State, seen: Seen) -> DdnState:
        assert isinstance(state, DdnState)
        x, queries = state.trial.x, state.queries + 1
        closest = nearest(state, seen.label, self.ball)
        farthest = torch.maximum(x, 1 - x).flatten(1).norm(dim=1)
        radius = state.radius * torch.where(closest.error, 1 - self.factor, 1 + self.factor)
        radius = torch.minimum(radius, farthest)

        length = at(state.queries, cosine(self.step_size, self.step_size * _LAST_STEP, self.steps), x)
        change = state.query + along(length, x) * self._direction(state, seen.grad) - x
        norm = change.flatten(1).norm(dim=1).clamp(min=1e-12)
        point = self._rounded((x + change * along(radius / norm, x)).clamp(0, 1))
        done = queries >= self.steps
        return DdnState(
            trial=state.trial, query=torch.where(along(done, x), closest.or_else(state.query), point), queries=queries,
            done=done, nearest=closest.point, distance=closest.distance, radius=radius,
        )  # fmt: skip

    def _direction(self, state: State, grad: Tensor) -> Tensor:
        """The steepest direction; a random one where the gradient is zero."""
        steepest = self.ball.steepest(grad, state.query)
        flat = (grad == 0).flatten(1).all(1)
        if surely_none(flat):  # saves time and changes no row's value
            return steepest
        draw = noise.normal(state.trial.key, state.queries + 1, grad.shape[1:]).to(grad)
        return torch.where(along(flat, grad), self.ball.steepest(draw, state.query), steepest)

    def _rounded(self, point: Tensor) -> Tensor:
        if self.levels is None:
            return point
        return (point * (self.levels - 1)).round() / (self.levels - 1)
