"""FGSM: one step of length eps along the steepest direction (the sign of the gradient, for Linf).

Goodfellow et al. 2015, arXiv:1412.6572. Ours differs: the non-saturating form of cross-entropy, and any norm.
Bad at: everything but low cost. Accuracy under FGSM alone is no evidence of robustness.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin


@dataclass(frozen=True)
class FGSM(Attack):
    """Fast gradient sign method; the fast gradient method for norms other than Linf.

    Args:
        random_start: begin at a random point of the ball (Wong et al. 2020, arXiv:2001.03994).
        loss: "log-odds", "ce", "margin", "dlr", or a function of your own (`losses.loss`).
    """

    _: KW_ONLY
    random_start: bool = False
    loss: str | losses.LossFunction = "log-odds"

    norms = ("Linf", "L2", "L1")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.climbed

    @cached_property
    def climbed(self) -> losses.Loss:
        """The loss that is maximised."""
        return losses.loss(self.loss)

    @property
    def cost(self) -> TrialCost:
        return TrialCost(2, 1)

    def init(self, trials: Trials) -> State:
        return begin(trials, self.ball.random(trials.x, trials.key, 0) if self.random_start else trials.x)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return self.climbed(logits, trials.y, trials.loss_target)

    def step(self, state: State, seen: Seen) -> State:
        query = self.ball.climb(state.trial.x, state.query, seen.grad, self.ball.eps)
        return replace(state, query=query, queries=state.queries + 1, done=torch.ones_like(state.done))
