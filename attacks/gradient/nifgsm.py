"""NI-FGSM: momentum with Nesterov's look-ahead: the gradient is taken where the velocity leads next.

Lin et al. 2020, arXiv:1908.06281. The look-ahead point may lie outside the ball, as in the paper; a misclassified
look-ahead point outside the ball is no success. The paper has Linf alone, where a velocity of mean absolute value 1
leads one step ahead; in L2 it is scaled to lead as far, in Euclidean length.
Bad at: white-box strength, as MI-FGSM is.
"""

from dataclasses import dataclass

from torch import Tensor

from ._momentum import Momentum, MomentumState


@dataclass(frozen=True)
class NIFGSM(Momentum):
    """Nesterov iterative fast gradient sign method."""

    def ahead(self, state: MomentumState) -> Tensor:
        return self.look_ahead(state)
