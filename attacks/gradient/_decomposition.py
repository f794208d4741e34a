"""Ascent on a margin in two stages: first on one of its two terms alone, then on their difference.

Ma et al. 2020, arXiv:2006.13726. Where the gradient of one term is much larger than that of the other, it dominates the
margin's gradient, and ascent on the margin stops where that one term is flat. In the first stage, restarts 0, 2, 4, ...
lower the score of the true class, and the others raise that of the likeliest wrong class. In each stage, the length of
the steps falls from 2 eps along a cosine.

The constants are those of the authors' code. As in that code, the very first step raises the true class, and the cosine
of both stages is as long as the second stage.
"""

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.ascent import GradientSteps
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import along

from .._schedules import at, table


@dataclass(frozen=True)
class Decomposition(GradientSteps):
    """Base of attacks on a margin and its two terms; a subclass has `right`, `wrong` and `objective`.

    Args:
        steps: gradient steps per trial.
        restarts: trials per image; with two, each term comes first once.
    """

    _: KW_ONLY
    restarts: int = 2

    norms = ("Linf",)
    first_share: ClassVar[float]  # share of the steps that belong to the first stage

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 1, self.steps)

    @property
    def change(self) -> int:
        """The number of steps in the first stage."""
        return int(self.first_share * self.steps)

    @abstractmethod
    def right(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B]` the term that rises with the score of the true class."""

    @abstractmethod
    def wrong(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B]` the term that rises with the largest score of a wrong class, or with that of `loss_target`."""

    def objective_at(self, logits: Tensor, state: State) -> Tensor:
        trials = state.trial
        right = self.right(logits, trials)
        term = torch.where(trials.restart % 2 == 0, -right, self.wrong(logits, trials))
        term = torch.where(state.queries == 0, right, term)
        return torch.where(state.queries < max(self.change, 1), term, self.objective(logits, trials))

    def init(self, trials: Trials) -> State:
        return begin(trials, self.ball.random(trials.x, trials.key, 0))

    def step(self, state: State, seen: Seen) -> State:
        length = self.ball.eps * at(state.queries, lengths(self.steps, self.change), seen.grad)
        query = self.ball.climb(state.trial.x, state.query, seen.grad, along(length, seen.grad))
        queries = state.queries + 1
        return replace(state, query=query, queries=queries, done=queries >= self.steps)


@cache
def lengths(steps: int, change: int) -> Tensor:
    """`[steps]` length of each step in units of eps; the second stage begins after step `change`."""
    turns = [turn - 1 if turn <= change else turn - change - 1 for turn in range(steps)]
    return table(1 + math.cos(math.pi * turn / max(steps - change, 1)) for turn in turns)


def likeliest_wrong(logits: Tensor, trials: Trials) -> Tensor:
    """`[B]` the logit of the class that the loss aims at; without one, the largest logit of a wrong class."""
    aimed = logits.gather(1, trials.loss_target.clamp(min=0).unsqueeze(1)).squeeze(1)
    largest = losses.without(logits, trials.y).amax(1)
    return torch.where(trials.loss_target >= 0, aimed, largest)
