"""Carlini & Wagner's search for the weight of the margin against the distance, which EAD shares."""

from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.primitives.rows import Rows

_LARGEST = 1e10  # largest weight; the distance hardly counts any more
_GROWTH = 10.0  # factor of the weight after each turn until the first error


@dataclass(frozen=True)
class WeightSearch(Rows):
    """The state of the search. A turn is one descent with one weight."""

    value: Tensor  # [B] the weight in use; c in the papers
    low: Tensor  # [B] the largest weight that led to no error
    high: Tensor  # [B] the smallest weight that led to an error, infinite before there is one
    error: Tensor  # [B] bool, this turn has had an error
    turn: Tensor  # [B] int64 finished turns
    step: Tensor  # [B] int64 finished steps of this turn
    checked: Tensor  # [B] the loss when progress was last checked


def begin_search(value: float, like: Tensor) -> WeightSearch:
    """The state before the first turn, with as many rows as `like` and the weight `value`."""
    start = torch.full((len(like),), value, dtype=like.dtype, device=like.device)
    none = torch.zeros_like(start, dtype=torch.int64)
    return WeightSearch(start, torch.zeros_like(start), start + torch.inf, none > 0, none, none, start + torch.inf)


def searched(weight: WeightSearch, error: Tensor, loss: Tensor, steps: int, *, abort_early: bool) -> WeightSearch:
    """The state after one step of the descent; its `step` is 0 where a new turn begins.

    Args:
        weight: the state before the step.
        error: `[B]` bool, the query was an error.
        loss: `[B]` the loss of the descent.
        steps: steps of a turn.
        abort_early: end a turn without an error if a tenth of its steps has not lowered the loss by 0.01 %.
    """
    # The authors' code also aborts turns that have had an error, and all images together. But in such turns the errors
    # come nearer until the end, even where the loss does not fall steadily: in EAD by a quarter on one network.
    error = weight.error | error
    look = weight.step % max(1, -(-steps // 10)) == 0
    stuck = look & ~error & (loss > 0.9999 * weight.checked) if abort_early else torch.zeros_like(look)
    ends = stuck | (weight.step + 1 >= steps)
    low = torch.where(ends & ~error, weight.value, weight.low)
    high = torch.where(ends & error, torch.minimum(weight.value, weight.high), weight.high)
    between = torch.where(high.isfinite(), (low + high) / 2, (weight.value * _GROWTH).clamp(max=_LARGEST))
    return WeightSearch(
        value=torch.where(ends, between, weight.value), low=low, high=high, error=error & ~ends,
        turn=weight.turn + ends, step=torch.where(ends, 0, weight.step + 1),
        checked=torch.where(ends, torch.inf, torch.where(look, loss, weight.checked)),
    )  # fmt: skip
