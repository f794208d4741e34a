"""ACG: Auto-PGD with conjugate gradient directions, which leave a local maximum sooner than the gradient does.

Yamamura et al. 2022, arXiv:2206.09628. The search begins in the centre of the intersection of ball and box; restarts
begin at random points. The direction, and what differs, are described in `_conjugate.py`.
Bad at: few steps, and models that mask gradients. Where gradients are nearly constant it is PGD with this schedule.
"""

from dataclasses import dataclass

from torch import Tensor

from robustkit.primitives.protocol import Trials

from ._conjugate import ConjugateAscent, hestenes_stiefel


@dataclass(frozen=True)
class ACG(ConjugateAscent):
    """Auto conjugate gradient attack in Linf; its arguments are those of `ConjugateAscent`."""

    def start(self, trials: Trials) -> Tensor:
        eps, x = self.ball.eps, trials.x
        return ((x - eps).clamp(min=0) + (x + eps).clamp(max=1)) / 2

    def beta(self, grad: Tensor, before: Tensor, direction: Tensor) -> Tensor:
        return hestenes_stiefel(grad, before, direction)
