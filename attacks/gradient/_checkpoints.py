"""The step size of Auto-PGD: halved at checkpoints where the search has made too little progress.

Croce & Hein 2020, arXiv:2003.01690, section 3.1. Ours differs: it counts the steps that raised the loss instead of
storing all losses (same decisions). The first loss is compared with that of the start point, as in the paper; the
authors' code compares it with zero.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives.protocol import BestState, Seen, Trials, begin
from robustkit.primitives.rows import along


@dataclass(frozen=True)
class CheckpointState(BestState):
    """The state of an attack whose step size is halved at checkpoints."""

    # changes at every step
    best_grad: Tensor  # [B, *S] the gradient at the best iterate
    last_loss: Tensor  # [B] the loss at the previous iterate
    rises: Tensor  # [B] int64 steps since the last checkpoint at which the loss rose
    # changes at checkpoints
    step_size: Tensor  # [B] in units of the input
    period: Tensor  # [B] int64 steps from the last checkpoint to the next
    next_check: Tensor  # [B] int64 value of `queries` at the next checkpoint
    check_loss: Tensor  # [B] best loss at the last checkpoint
    reduced: Tensor  # [B] bool, the step size was halved at the last checkpoint


class LookBack(NamedTuple):
    """What the model's answer at one query changes, before the next query is chosen."""

    state: CheckpointState  # updated, except that its query is still the old one
    better: Tensor  # [B] bool, the query is the best iterate so far
    halved: Tensor  # [B] bool, the step size has just been halved: the search goes on from the best iterate


@dataclass(frozen=True)
class Checkpoints:
    """When the checkpoints are, and how much progress between them keeps the step size.

    Args:
        steps: gradient steps of the search.
        rho: share of steps that must raise the loss for the step size to stay.
        first: steps before the first checkpoint, as a share of all steps.
        shorter: how much each period is shorter than the previous one, as a share of all steps.
        least: steps of the shortest period, as a share of all steps.
    """

    steps: int
    rho: float
    first: float = 0.22
    shorter: float = 0.03
    least: float = 0.06

    def begin(self, trials: Trials, start: Tensor, step_size: float) -> CheckpointState:
        """The state before the first query, which is `start` `[B, *S]`."""
        zeros, zero = torch.zeros_like(start), torch.zeros(len(start), device=start.device, dtype=start.dtype)
        period = torch.full_like(trials.y, self._share(self.first))
        return CheckpointState(
            **vars(begin(trials, start)),
            best=start, best_grad=zeros, best_loss=zero, last_loss=zero, rises=torch.zeros_like(period),
            step_size=zero + step_size, period=period, next_check=period + 1, check_loss=zero,
            reduced=torch.ones_like(period, dtype=torch.bool),
        )  # fmt: skip

    def look_back(self, state: CheckpointState, seen: Seen) -> LookBack:
        """Update the best iterate, the count of rises and, at a checkpoint, the step size."""
        first, queries = state.queries == 0, state.queries + 1
        rises = state.rises + (~first & (seen.loss > state.last_loss))
        better = first | (seen.loss > state.best_loss)
        best_loss = torch.where(better, seen.loss, state.best_loss)

        check = queries == state.next_check
        check_loss = torch.where(first, seen.loss, state.check_loss)
        # Condition 1 of the paper (too few rises) or 2 (step size not halved last time, and no higher loss since).
        # The paper writes <, the authors' code <=; we follow the code, whose numbers are published.
        stuck = (rises <= self.rho * state.period) | (~state.reduced & (check_loss >= best_loss))
        halved = check & stuck
        period = torch.where(check, self._shortened(state.period), state.period)
        after = CheckpointState(
            trial=state.trial, query=state.query, queries=queries, done=queries >= self.steps,
            best=torch.where(along(better, state.best), state.query, state.best),
            best_grad=torch.where(along(better, state.best), seen.grad, state.best_grad), best_loss=best_loss,
            last_loss=seen.loss, rises=rises * ~check,
            step_size=torch.where(halved, state.step_size / 2, state.step_size), period=period,
            next_check=torch.where(check, queries + period, state.next_check),
            check_loss=torch.where(check, best_loss, check_loss), reduced=torch.where(check, halved, state.reduced),
        )  # fmt: skip
        return LookBack(after, better, halved)

    def _share(self, share: float) -> int:
        return max(int(share * self.steps), 1)

    def _shortened(self, period: Tensor) -> Tensor:
        return (period - self._share(self.shorter)).clamp(min=self._share(self.least))
