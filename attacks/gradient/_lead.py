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

    first: Tensor  # [B] at the first query
    least: Tensor  # [B] the least so far

    @classmethod
    def begin(cls, like: Tensor) -> Self:
        """Before the first query."""
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def after(self, state: State, seen: Seen) -> "Lead":
        """After the answer to the query of `state`."""
        now = -losses.LOSSES["margin"](seen.logits, state.trial.y, state.trial.loss_target).to(self.first)
        first = state.queries == 0
        return Lead(torch.where(first, now, self.first), torch.where(first, now, torch.minimum(self.least, now)))


@cache
def allowed(pace: float, steps: int, before: int = 0) -> Tensor:
    """`[steps]` the share of the lead that may be left after so many steps: the pace to the power of the fifths ended.

    Args:
        pace: the share that each fifth may leave.
        steps: of the search.
        before: fifths that count as ended before the first step.
    """
    fifths = {steps * n // 5: pace ** max(before + n, 0) for n in range(1, 5)}
    return table(fifths.get(step, math.inf) if step else math.inf for step in range(steps))
