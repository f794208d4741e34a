"""A search for the weight of the error's margin against the distance: Carlini & Wagner's, which EAD shares."""

from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.primitives.rows import Rows

_LARGEST = 1e10  # a weight that leaves nothing of the distance
_GROWTH = 10.0  # until the first error


@dataclass(frozen=True)
class WeightSearch(Rows):
    """The state of the search. Each turn is a descent with one weight."""

    value: Tensor  # [B] the weight in use; c in the papers
    low: Tensor  # [B] the largest that was too small
    high: Tensor  # [B] the smallest that led to an error, infinite before there is one
    error: Tensor  # [B] bool, this turn has had an error
    turn: Tensor  # [B] int64 turns so far
    step: Tensor  # [B] int64 steps in this turn
    checked: Tensor  # [B] the loss at the last look at the progress


def begin_search(value: float, like: Tensor) -> WeightSearch:
    """The state before the first turn, for rows as many as those of `like`."""
    start = torch.full((len(like),), value, dtype=like.dtype, device=like.device)
    none = torch.zeros_like(start, dtype=torch.int64)
    return WeightSearch(start, torch.zeros_like(start), start + torch.inf, none > 0, none, none, start + torch.inf)


def searched(weight: WeightSearch, error: Tensor, loss: Tensor, steps: int, *, abort_early: bool) -> WeightSearch:
    """The state after one step, whose `step` is 0 where a new turn begins.

    Args:
        weight: before it.
        error: `[B]` bool, the query was an error.
        loss: `[B]` the value that descends.
        steps: of a turn.
        abort_early: end a turn without an error in which a tenth of the steps has not lowered the loss by 0.01 %.
    """
    # The authors and the peers also end turns with errors, and for all images together. Errors of such turns come
    # nearer until the end, also where the loss does not fall steadily: in EAD by a quarter on one network.
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
