"""Guided Square: the random windows of Square, of which the gradient chooses the most promising one.

Ours. The windows and their schedule are those of Square (Andriushchenko et al. 2020, arXiv:1912.00049). Before each
query, several windows are drawn. The gradient at the best point predicts how much each would raise the loss, and the
best one is queried. The search begins where a short gradient ascent ended.
Large jumps between corners of the ball make progress where gradient ascent stops at a flat or uneven loss, and the
gradient says which jump to try. On images of a network trained with TRADES on MNIST that 100 steps of APGD left near
the boundary, 500 steps break 5 to 8 of 32 and Square with 1,000 queries 1 to 3; see bench/designs.md.
Bad at: models that mask gradients (take Square), and images that gradient ascent breaks, for which it is slow.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives.ascent import Ascent
from robustkit.primitives.best import begin_best, best, no_better
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.rows import along

from .._phases import by_phase
from .._planes import plane
from ..score.square import sides
from ..score.square_windows import Proposal


@dataclass(frozen=True)
class GuidedState(BestState):
    """The state of one trial."""

    best_grad: Tensor  # [B, *S] the gradient at the best point


@dataclass(frozen=True)
class GuidedSquare(Ascent):
    """Square attack with windows chosen by the gradient, in Linf, L2 or L1.

    Args:
        steps: gradient queries per trial, including those of the first ascent.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
        ascent: steps of steepest ascent before the search; their length falls from eps to almost nothing.
        candidates: windows drawn before each query, of which one is queried.
        p_init: share of all pixels in the first window.
    """

    _: KW_ONLY
    steps: int = 500
    ascent: int = 20
    candidates: int = 4
    p_init: float = 0.8

    norms = ("Linf", "L2", "L1")
    keeps_best = True
    guesses = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0, "ascent")
        self.at_least(1, "candidates")
        self.share("p_init")

    def init(self, trials: Trials) -> State:
        start = self.ball.random(trials.x, trials.key, 0)
        return GuidedState(**vars(begin_best(trials, start)), best_grad=torch.zeros_like(start))

    def step(self, state: State, seen: Seen) -> State:
        assert isinstance(state, GuidedState)
        x, queries = state.trial.x, state.queries + 1
        now = best(state, seen)
        best_grad = torch.where(along(now.better, x), seen.grad, state.best_grad)
        query = by_phase(
            (queries > self.ascent).long(),
            (
                lambda: self._climbed(state, seen),
                lambda: self._jumped(x, now.point, best_grad, state.trial.key, queries),
            ),
        )
        return GuidedState(state.trial, query, queries, queries >= self.steps, now.point, now.loss, best_grad)

    def guess(self, state: State, steps: Tensor) -> State:
        """The states if no answer is better than the best one, as is true of most answers of the search."""
        assert isinstance(state, GuidedState)
        before = replace(state, queries=state.queries + steps - 1)
        return self.step(before, replace(no_better(state), grad=state.best_grad))

    def _climbed(self, state: State, seen: Seen) -> Tensor:
        left = (1 - state.queries / max(self.ascent, 1)).clamp(min=0)
        return self.ball.climb(
            state.trial.x, state.query, seen.grad, along(self.ball.eps * left.to(seen.grad), seen.grad)
        )

    def _jumped(self, x: Tensor, point: Tensor, grad: Tensor, key: Tensor, queries: Tensor) -> Tensor:
        """The candidate for which the gradient predicts the largest rise of the loss."""
        clean, here, slope = plane(x), plane(point), plane(grad)
        searched = max(self.steps - self.ascent, 1)
        side = sides(searched, searched, self.p_init, clean.shape[-2] * clean.shape[-1], self.ball.norm != "Linf")
        side = side.to(x.device).index_select(0, (queries - self.ascent - 1).clamp(0, searched - 1))
        chosen, largest_gain = here, torch.full_like(queries, -torch.inf, dtype=x.dtype)
        for number in range(self.candidates):
            there = Proposal(clean, here, key, queries * self.candidates + number, side).of(self.ball)
            change = there - here
            gain = (change * slope).flatten(1).sum(1)
            # Without this, a window that changes nothing (gain 0) would win if all others have negative gains.
            gain = torch.where(change.flatten(1).any(1), gain, -torch.inf)
            chosen = torch.where(along(gain > largest_gain, here), there, chosen)
            largest_gain = torch.maximum(gain, largest_gain)
        return chosen.reshape(x.shape)
