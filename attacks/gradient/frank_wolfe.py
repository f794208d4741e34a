"""Frank-Wolfe: steps towards the point of the ball where the gradient predicts the largest loss, without a projection.

Chen et al. 2020, arXiv:1811.10828 (white-box form, for Linf, L2 and L1). Each step goes a part of the way to the point
where an average of the gradients, each at length 1, predicts the largest loss. Ours differs: that point is exact for
ball and box together, so no query is ever projected or clipped; after k others a step goes 2 / (k + 2) of the way
(Jaggi 2013); and the average keeps half of the earlier one. The first step goes all the way, so of the random start
only the gradient matters. A value whose average slope is 0 goes back towards the image.
In L1, where few values move far, ten steps break more images than ten of APGD on networks for CIFAR-10; see
bench/attacks.md.
Bad at: long runs in L1, where APGD's larger balls lead to more errors; images so small that a pass takes less time than
a sort of their values.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.ascent import Ascent
from robustkit.primitives.ball import unit
from robustkit.primitives.protocol import BestState, Seen, State, Trials, begin
from robustkit.primitives.reach import farthest
from robustkit.primitives.rows import along


@dataclass(frozen=True)
class FrankWolfeState(BestState):
    """The state of one trial."""

    average: Tensor  # [B, *S] of the gradients so far


@dataclass(frozen=True)
class FrankWolfe(Ascent):
    """The Frank-Wolfe attack in Linf, L2 or L1.

    Args:
        steps: gradient steps per trial.
        momentum: share of the earlier average in the average of the gradients, below 1; the first gradient is the first
            average.
        random_start: begin at a random end of the ball instead of the image itself.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
    """

    _: KW_ONLY
    steps: int = 20
    momentum: float = 0.5
    random_start: bool = True

    norms = ("Linf", "L2", "L1")
    keeps_best = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.share("momentum")
        if self.momentum == 1:
            raise UserError(f"{type(self).__name__}: momentum must be below 1; with 1 no step but the first moves.")

    def init(self, trials: Trials) -> FrankWolfeState:
        x = trials.x
        start = self._end(x, noise.normal(trials.key, 0, x.shape[1:]).to(x)) if self.random_start else x
        loss = torch.zeros(len(x), device=x.device, dtype=x.dtype)
        return FrankWolfeState(
            **vars(begin(trials, start)), best=start, best_loss=loss, average=torch.zeros_like(start)
        )

    def step(self, state: State, seen: Seen) -> FrankWolfeState:
        assert isinstance(state, FrankWolfeState)
        x, queries = state.trial.x, state.queries + 1
        first = state.queries == 0
        better = first | (seen.loss > state.best_loss)
        share = along(torch.where(first, 0.0, float(self.momentum)).to(x), x)
        average = share * state.average + (1 - share) * unit(seen.grad)
        part = along((2 / (queries + 1)).to(x), x)
        return FrankWolfeState(
            trial=state.trial, query=state.query + part * (self._end(x, average) - state.query), queries=queries,
            done=queries >= self.steps, best=torch.where(along(better, x), state.query, state.best),
            best_loss=torch.where(better, seen.loss, state.best_loss), average=average,
        )  # fmt: skip

    def _end(self, x: Tensor, slope: Tensor) -> Tensor:
        """`[B, *S]` the points of ball and box where linear functions are largest."""
        if self.ball.norm == "Linf":  # ten times as fast in the type of the images
            return self.ball.climb(x, x, slope, self.ball.eps)
        return farthest(self.ball, x, slope).to(x)
