"""What attacks share that return to the best point that they have queried; `nearest.py` is its counterpart."""

from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives.protocol import BestState, Seen, Trials, begin
from robustkit.primitives.rows import along


class Best(NamedTuple):
    """What one answer of the model says about the best point."""

    better: Tensor  # [B] bool, the query is better than all before
    point: Tensor  # [B, *S] the best point so far
    loss: Tensor  # [B] the objective there


def begin_best(trials: Trials, query: Tensor) -> BestState:
    """The state of trials before their first query, at `query`, when every objective is an improvement."""
    lowest = torch.full_like(trials.y, -torch.inf, dtype=query.dtype)
    return BestState(**vars(begin(trials, query)), best=query, best_loss=lowest)


def best(state: BestState, seen: Seen, *, looked_at: Tensor | bool = True) -> Best:
    """The best point after one answer.

    Args:
        state: before it.
        seen: the answer.
        looked_at: `[B]` False for queries that are no candidates.
    """
    better = (seen.loss > state.best_loss) & looked_at
    point = torch.where(along(better, state.best), state.query, state.best)
    return Best(better, point, torch.where(better, seen.loss, state.best_loss))


def no_better(state: BestState) -> Seen:
    """An answer that is worse than the best one, for attacks that guess their next query; without a gradient."""
    nothing = state.best_loss.new_zeros(len(state), 0)
    return Seen(state.trial.y, nothing, torch.full_like(state.best_loss, -torch.inf), nothing)
