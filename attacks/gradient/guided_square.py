"""Guided Square: Square's random windows, of which the gradient chooses the most promising.

Ours. The windows and their schedule are those of Square (Andriushchenko et al. 2020, arXiv:1912.00049), but at each
query several windows are drawn, and the one is tried whose change the gradient at the best point predicts to raise the
loss most. The search begins where a short gradient ascent ended.
Where plain ascents end in front of a flat or folded loss, jumps between corners of the ball lead on; where scores alone
do not say which jump to try, the gradient does. On images of a network trained with TRADES on MNIST that 100 steps of
APGD left near the boundary, 500 steps break 5 to 8 of 32 and Square with 1,000 queries 1 to 3; see bench/README.md.
Bad at: models that mask gradients (take Square), and images that plain ascents break, for which it is slow.
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
    """Square windows that change at random, chosen by the gradient.

    Args:
        steps: gradient queries per trial, those of the first ascent included.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
        ascent: steps of steepest ascent before the search; their length falls from eps to almost nothing.
        candidates: windows drawn for each query.
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
        """The states after answers that are no better, as most are once the search has begun."""
        assert isinstance(state, GuidedState)
        before = replace(state, queries=state.queries + steps - 1)
        return self.step(before, replace(no_better(state), grad=state.best_grad))

    def _climbed(self, state: State, seen: Seen) -> Tensor:
        left = (1 - state.queries / max(self.ascent, 1)).clamp(min=0)
        return self.ball.climb(
            state.trial.x, state.query, seen.grad, along(self.ball.eps * left.to(seen.grad), seen.grad)
        )

    def _jumped(self, x: Tensor, point: Tensor, grad: Tensor, key: Tensor, queries: Tensor) -> Tensor:
        """Of all candidates the one that the gradient predicts to raise the loss most."""
        clean, here, slope = plane(x), plane(point), plane(grad)
        searched = max(self.steps - self.ascent, 1)
        side = sides(searched, searched, self.p_init, clean.shape[-2] * clean.shape[-1], self.ball.norm != "Linf")
        side = side.to(x.device).index_select(0, (queries - self.ascent - 1).clamp(0, searched - 1))
        chosen, most = here, torch.full_like(queries, -torch.inf, dtype=x.dtype)
        for number in range(self.candidates):
            there = Proposal(clean, here, key, queries * self.candidates + number, side).of(self.ball)
            change = there - here
            gain = (change * slope).flatten(1).sum(1)
            # A window that changes nothing gains nothing, and every other one may be a loss.
            gain = torch.where(change.flatten(1).any(1), gain, -torch.inf)
            chosen = torch.where(along(gain > most, here), there, chosen)
            most = torch.maximum(gain, most)
        return chosen.reshape(x.shape)
