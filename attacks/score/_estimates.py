"""The shared part of attacks that estimate a gradient from differences of the loss along random directions.

An estimate takes one query of the current point, then two queries for each direction, on opposite sides of the point.
Directions are not stored but drawn again from the row's key when they are needed.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from robustkit.primitives.best import begin_best, best
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.queries import ScoreAttack
from robustkit.primitives.rows import along


@dataclass(frozen=True)
class EstimateState(BestState):
    """The state of an attack that climbs estimated gradients."""

    point: Tensor  # [B, *S] around which the gradient is estimated
    total: Tensor  # [B, *S] sum over the directions so far of the direction times its difference of the loss
    ahead: Tensor  # [B] the loss at the previous query: after the first side of a direction, the loss there


@dataclass(frozen=True)
class EstimatingAttack(ScoreAttack):
    """Base of attacks that climb estimated gradients of the margin.

    Args:
        queries: forward passes per trial, at least 2.
        directions: random directions of one estimate, which takes two queries for each and one for its point.
        spread: standard deviation of the queries around the point, in units of pixels that lie in [0, 1].
        step_size: in units of eps.
    """

    _: KW_ONLY
    directions: int = 25
    spread: float = 0.001
    step_size: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "directions")
        self.at_least(0.0, "step_size")
        self.positive("spread")

    def step(self, state: State, seen: Seen) -> State:
        assert isinstance(state, EstimateState)
        turn = state.queries % (2 * self.directions + 1)
        back, last = (turn > 0) & (turn % 2 == 0), turn == 2 * self.directions
        now = best(state, seen, looked_at=turn == 0)
        difference = torch.where(back, state.ahead - seen.loss, 0)
        total = state.total
        if bool(back.any()):  # saves time and changes no row's value
            total = total + along(difference, total) * self._direction(state, state.queries - 1)
        climbed = self.climbed(state, total)
        state = climbed.where(last, state) if bool(last.any()) else state
        queries = state.queries + 1
        state = replace(
            state, total=torch.where(along(last, total), 0, total), ahead=seen.loss, queries=queries,
            done=queries >= self.queries - 1, best=now.point, best_loss=now.loss,
        )  # fmt: skip
        return replace(state, query=self._next(state))

    @abstractmethod
    def climbed(self, state: EstimateState, grad: Tensor) -> EstimateState:
        """The state after a step along `grad`, `[B, *S]`: an estimate of the gradient up to a positive factor."""

    @abstractmethod
    def random(self, x: Tensor, key: Tensor, draw: Tensor) -> Tensor:
        """`[B, *S]` random directions whose values have variance 1."""

    def _next(self, state: EstimateState) -> Tensor:
        """The next query: the point itself, or a point on one side of it, clipped to [0, 1]."""
        turn = state.queries % (2 * self.directions + 1)
        side = (turn % 2 * 2 - 1).masked_fill(turn == 0, 0).to(state.point) * self.spread
        draw = state.queries - (turn % 2 == 0).long()
        query = (state.point + along(side, state.point) * self._direction(state, draw)).clamp(0, 1)
        return torch.where(along(turn == 0, query), state.point, query)

    def _direction(self, state: EstimateState, draw: Tensor) -> Tensor:
        return self.random(state.trial.x, state.trial.key, draw)


def estimating(trials: Trials) -> dict[str, Any]:
    """The fields of an `EstimateState` before the first query, which is the image."""
    start = begin_best(trials, trials.x)
    none = torch.zeros_like(trials.x)
    return {**vars(start), "point": trials.x, "total": none, "ahead": torch.zeros_like(start.best_loss)}
