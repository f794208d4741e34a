"""NI-FGSM: MI-FGSM with Nesterov's look-ahead: the gradient is taken where the velocity would lead next.

Lin et al. 2020, arXiv:1908.06281. As in the paper, the look-ahead point may lie outside the ball; a misclassified point
out there is no success. The paper has Linf only, where a velocity of mean absolute value 1 leads one step ahead. In
L2 the velocity is scaled so that it leads one step ahead in Euclidean length.
Bad at: white-box strength, like MI-FGSM.
"""

from dataclasses import dataclass

from torch import Tensor

from ._momentum import Momentum, MomentumState


@dataclass(frozen=True)
class NIFGSM(Momentum):
    """Nesterov iterative fast gradient sign method in Linf or L2."""

    def ahead(self, state: MomentumState) -> Tensor:
        return self.look_ahead(state)
