"""SPSA: Adam on gradients that are estimated from random signs, added to the point and subtracted from it.

Uesato, O'Donoghue, van den Oord & Kohli 2018, arXiv:1802.05666, algorithm 1; the estimate is Spall's (1992). Ours
differs: queries are clipped to [0, 1]; one estimate takes few directions, so that usual budgets allow many steps
(torchattacks takes one step by default).
Bad at: small budgets. NES, with normal directions, gives similar results.
"""

from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from ._estimates import EstimateState, EstimatingAttack, estimating

_DECAY = 0.9, 0.999  # of Adam's two moments (Kingma & Ba 2015)


@dataclass(frozen=True)
class SpsaState(EstimateState):
    """The state of one trial."""

    first: Tensor  # [B, *S] Adam's decaying mean of the estimates
    second: Tensor  # [B, *S] Adam's decaying mean of their squares
    left: Tensor  # [B, 2] float64 both decays to the power of the steps so far: Adam's beta ** t


@dataclass(frozen=True)
class SPSA(EstimatingAttack):
    """Simultaneous perturbation stochastic approximation in Linf.

    Args:
        queries: forward passes per trial, at least 2.
        directions: random directions of one estimate, which takes two queries for each and one for its point.
        spread: size of the change of every value, in units of pixels that lie in [0, 1].
        step_size: step size of Adam, in units of eps.
    """

    _: KW_ONLY
    spread: float = 0.01

    norms = ("Linf",)

    def init(self, trials: Trials) -> SpsaState:
        none = torch.zeros_like(trials.x)
        left = torch.ones(len(trials), 2, dtype=torch.float64, device=none.device)
        return SpsaState(**estimating(trials), first=none, second=none, left=left)

    def climbed(self, state: EstimateState, grad: Tensor) -> SpsaState:
        assert isinstance(state, SpsaState)
        first = _DECAY[0] * state.first + (1 - _DECAY[0]) * grad
        second = _DECAY[1] * state.second + (1 - _DECAY[1]) * grad.square()
        left = state.left * torch.tensor(_DECAY, dtype=torch.float64, device=grad.device)
        mean, square = (
            part / along(1 - each, part).to(part) for part, each in zip((first, second), left.unbind(1), strict=True)
        )
        # Adam's own floor of 1e-8 would make the step depend on the scale of the logits.
        move = mean / square.sqrt().clamp(min=torch.finfo(grad.dtype).tiny)
        point = self.ball.project(state.trial.x, state.point + self.step_size * self.ball.eps * move)
        return replace(state, point=point, first=first, second=second, left=left)

    def random(self, x: Tensor, key: Tensor, draw: Tensor) -> Tensor:
        return noise.signs(key, draw, x.shape[1:]).to(x)
