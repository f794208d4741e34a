"""LPA: gradient steps on the loss minus a penalty for the LPIPS distance beyond the radius; its weight grows.

Laidlaw, Singla & Feizi 2021, arXiv:2006.12655, section 4, the Lagrangian perceptual attack; constants of the authors'
code. Ours differs: each trial raises its own weight; the way back into the ball ends nearer to its surface; points are
brought into the ball by Newton's steps only, and a trial whose last point stays outside fails.
Bad at: few steps; each takes two queries, for its direction and for how far it moves the features.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives.ball import unit
from robustkit.primitives.perceptual import PerceptualAttack, PerceptualSeen, PerceptualState
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._schedules import at, exponential

_FIRST_WEIGHT, _GROWTH = 0.01, 10.0  # first weight of the distance beyond the radius; its factor between searches
_LAST_STEP = 0.1  # as a share of the first step, in each search
_PROBE = 0.1  # L2 length of the step that shows how fast features change


@dataclass(frozen=True)
class LpaState(PerceptualState):
    """The state of one trial."""

    point: Tensor  # [B, *S] where the last step began
    direction: Tensor  # [B, *S] direction of that step, of length 1
    anchor: Tensor  # [B, F] features at `point`
    weight: Tensor  # [B] weight of the distance beyond the radius


@dataclass(frozen=True)
class LPA(PerceptualAttack):
    """Lagrangian perceptual attack.

    Args:
        steps: gradient steps of each search.
        searches: number of searches; the weight is ten times larger after one that ended outside the ball.
        step_size: LPIPS length of the first step of a search; None is eps. The last one is a tenth of it.
        projections: the most steps back into the ball at the end.
    """

    _: KW_ONLY
    steps: int = 20
    searches: int = 5
    step_size: float | None = None
    projections: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "searches")
        self.at_least(0, "projections")
        self.at_least_or_none(0.0, "step_size")

    @property
    def cost(self) -> TrialCost:
        queries = 2 + 2 * self._turns + self.projections
        return TrialCost(queries + 3, queries)

    @property
    def _turns(self) -> int:
        return self.steps * self.searches

    def init(self, trials: Trials) -> LpaState:
        start = self.at_image(trials)
        return LpaState(
            **vars(start), point=trials.x, direction=torch.zeros_like(trials.x), anchor=start.clean,
            weight=torch.full_like(trials.x.flatten(1)[:, 0], _FIRST_WEIGHT),
        )  # fmt: skip

    def perceptual_objective(self, logits: Tensor, features: Tensor, state: State) -> Tensor:
        assert isinstance(state, LpaState)
        distance = self.distance(state, features)
        excess = (distance - self.ball.eps).clamp(min=0)
        searched = self.capped_loss(logits, state.trial) - state.weight * excess
        begun = torch.where(state.queries > 0, searched, self.objective(logits, state.trial))
        return torch.where(self._returning(state) & (excess > 0), -distance, begun)

    def step(self, state: State, seen: Seen) -> LpaState:
        assert isinstance(state, LpaState)
        assert isinstance(seen, PerceptualSeen)
        x, queries = state.trial.x, state.queries + 1
        first, returning = state.queries == 0, self._returning(state)
        looking = ~first & ~returning & (state.queries % 2 == 1)
        features = seen.features.to(state.clean)
        clean = torch.where(along(first, features), features, state.clean)
        excess = self.distance(state, features) - self.ball.eps

        point = torch.where(along(looking, x), state.query, state.point)
        direction = torch.where(along(looking, x), unit(seen.grad), state.direction)
        anchor = torch.where(along(looking, features), features, state.anchor)
        turn = (state.queries - 1).clamp(min=0) // 2
        last = looking & (turn % self.steps == self.steps - 1)
        weight = torch.where(last & (excess >= 0), state.weight * _GROWTH, state.weight)

        speed = (features - anchor).norm(dim=1) / _PROBE
        length = self._length * at(turn % self.steps, exponential(_LAST_STEP, self.steps), x)
        moved = (point + along(length / speed.clamp(min=1e-8), x) * direction).clamp(0, 1)
        back = self.stepped_back(state.query, excess, -seen.grad)
        query = torch.where(along(looking, x), point + _PROBE * direction, moved)
        query = torch.where(along(first, x), self.ball.random(x, state.trial.key, 0), query)
        query = torch.where(along(returning, x), back, query)
        done = returning & ((excess <= 0) | (queries >= 2 + 2 * self._turns + self.projections))
        query = torch.where(along(done, x), state.query, query)
        return LpaState(state.trial, query, queries, done, clean, point, direction, anchor, weight)

    @property
    def _length(self) -> float:
        return self.ball.eps if self.step_size is None else self.step_size

    def _returning(self, state: State) -> Tensor:
        return state.queries > 2 * self._turns
