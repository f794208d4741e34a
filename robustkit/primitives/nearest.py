"""What attacks share that look for the error nearest to an image, whatever its distance (minimum-norm attacks)."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives.ball import Ball
from robustkit.primitives.protocol import State, Trials, begin
from robustkit.primitives.rows import along


@dataclass(frozen=True)
class NearestState(State):
    """The state of an attack that keeps the nearest error that it has queried.

    Once a trial is done, its `query` is that error, or the last point if there is none.
    """

    nearest: Tensor  # [B, *S] the error that is nearest to the image so far; the image before there is one
    distance: Tensor  # [B] float64 its distance; infinite before there is one


class Nearest(NamedTuple):
    """What one answer of the model says about the nearest error."""

    error: Tensor  # [B] bool, the query is an error
    nearer: Tensor  # [B] bool, and nearer to the image than all before
    point: Tensor  # [B, *S] the nearest error so far
    distance: Tensor  # [B] float64 its distance

    def or_else(self, query: Tensor) -> Tensor:
        """The nearest error, and `query` where there is none yet: the last point of a trial."""
        return torch.where(along(self.distance.isfinite(), query), self.point, query)


def nearest(state: NearestState, label: Tensor, ball: Ball, *, looked_at: Tensor | bool = True) -> Nearest:
    """The nearest error after one answer.

    Args:
        state: before it.
        label: `[B]` the class that was answered.
        ball: whose norm measures distances.
        looked_at: `[B]` False for queries that are no candidates, for example because they lie outside of the box.
    """
    error = is_error(label, state.trial) & looked_at
    distance = ball.distance(state.trial.x, state.query)
    nearer = error & (distance < state.distance)
    point = torch.where(along(nearer, state.query), state.query, state.nearest)
    return Nearest(error, nearer, point, torch.where(nearer, distance, state.distance))


def begin_nearest(trials: Trials, query: Tensor) -> NearestState:
    """The state of trials before their first query, at `query`, when no error is known."""
    unknown = torch.full_like(trials.y, torch.inf, dtype=torch.float64)
    return NearestState(**vars(begin(trials, query)), nearest=trials.x, distance=unknown)


def is_error(label: Tensor, trials: Trials) -> Tensor:
    """`[B]`: the label is wrong, or the target where there is one; a smoothed model that abstains (-1) is not wrong."""
    wrong = (label != trials.y) & (label >= 0)
    return torch.where(trials.target >= 0, label == trials.target, wrong)
