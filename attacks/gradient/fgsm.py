"""FGSM: one step of length eps along the steepest direction (the sign of the gradient, for Linf).

Goodfellow et al. 2015, arXiv:1412.6572. Ours differs: the loss is the non-saturating form of cross-entropy, and there
are L2 and L1 forms.
Bad at: everything but low cost. Accuracy under FGSM alone is no evidence of robustness.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch

from robustkit.primitives.ascent import LossAttack
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials, begin


@dataclass(frozen=True)
class FGSM(LossAttack):
    """Fast gradient sign method; the fast gradient method for norms other than Linf.

    Args:
        random_start: begin at a random point of the ball instead of the image, as Wong et al. 2020, arXiv:2001.03994,
            do; their step is 1.25 eps long, ours eps.
    """

    _: KW_ONLY
    random_start: bool = False

    norms = ("Linf", "L2", "L1")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(2, 1)

    def init(self, trials: Trials) -> State:
        return begin(trials, self.ball.random(trials.x, trials.key, 0) if self.random_start else trials.x)

    def step(self, state: State, seen: Seen) -> State:
        query = self.ball.climb(state.trial.x, state.query, seen.grad, self.ball.eps)
        return replace(state, query=query, queries=state.queries + 1, done=torch.ones_like(state.done))
