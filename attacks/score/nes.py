"""NES: projected ascent along gradients estimated from normal noise, added to the point and subtracted from it.

Ilyas, Engstrom, Athalye & Lin 2018, arXiv:1804.08598, algorithm 1, with momentum. Ours differs: the loss is the margin,
whose scale does not matter; queries are clipped to [0, 1]; the step size is constant.
Bad at: budgets of only a few estimates, where Square and SignHunter break more.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import Trials

from ._estimates import EstimateState, EstimatingAttack, estimating


@dataclass(frozen=True)
class NesState(EstimateState):
    """The state of one trial."""

    momentum: Tensor  # [B, *S] decaying sum of the estimates


@dataclass(frozen=True)
class NES(EstimatingAttack):
    """Natural evolution strategies in Linf or L2.

    Args:
        queries: forward passes per trial, at least 2.
        directions: random directions of one estimate, which takes two queries for each and one for its point.
        spread: standard deviation of the queries around the point, in units of pixels that lie in [0, 1].
        step_size: in units of eps.
        momentum: share of the earlier estimates that is kept, below 1.
    """

    _: KW_ONLY
    momentum: float = 0.9

    norms = ("Linf", "L2")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "momentum")

    def init(self, trials: Trials) -> NesState:
        return NesState(**estimating(trials), momentum=torch.zeros_like(trials.x))

    def climbed(self, state: EstimateState, grad: Tensor) -> NesState:
        assert isinstance(state, NesState)
        momentum = self.momentum * state.momentum + grad
        point = self.ball.climb(state.trial.x, state.point, momentum, self.step_size * self.ball.eps)
        return replace(state, point=point, momentum=momentum)

    def random(self, x: Tensor, key: Tensor, draw: Tensor) -> Tensor:
        return noise.normal(key, draw, x.shape[1:]).to(x)
