"""How much of the true class's lead over another class a search has left, and how much it may have left."""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.primitives import losses
from robustkit.primitives.protocol import Seen, State
from robustkit.primitives.rows import Rows

from .._schedules import table


@dataclass(frozen=True)
class Lead(Rows):
    """The margin over the class that a search aims at, or over the nearest one."""

    first: Tensor  # [B] at the first query, or where the last ball begins, if it is larger there
    least: Tensor  # [B] the least so far; in the last ball, the least there

    @classmethod
    def begin(cls, like: Tensor) -> Self:
        """Before the first query."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def after(self, state: State, seen: Seen, last_ball: int = 0) -> "Lead":
        """After the answer to the query of `state`; before the last ball the search takes `last_ball` queries."""
        now = -losses.LOSSES["margin"](seen.logits, state.trial.y, state.trial.loss_target).to(self.first)
        begins, closes_in = state.queries == 0, state.queries == last_ball
        first = torch.where(begins, now, torch.where(closes_in, torch.maximum(self.first, now), self.first))
        return Lead(first, torch.where(begins | closes_in, now, torch.minimum(self.least, now)))


@cache
def allowed(pace: float, steps: int, *, ended: int = 0, start: int = 0) -> Tensor:
    """`[start + steps]` the share of the lead that may be left after so many queries: a power of the pace.

    Args:
        pace: the share that each fifth of the steps may leave.
        steps: of the search.
        ended: fifths that count as ended before the first step.
        start: queries before the search.
    """
    fifths = {start + steps * n // 5: pace ** max(ended + n, 0) for n in range(1, 5) if steps * n // 5}
    return table(fifths.get(query, math.inf) for query in range(start + steps))
