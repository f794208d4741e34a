"""MI-FGSM: iterative FGSM whose direction gathers momentum (heavy ball), which transfers better between models.

Dong et al. 2018, arXiv:1710.06081.
Bad at: white-box strength; with steps of eps / steps it cannot return from a wrong direction.
"""

from dataclasses import dataclass

from torch import Tensor

from ._momentum import Momentum, MomentumState


@dataclass(frozen=True)
class MIFGSM(Momentum):
    """Momentum iterative fast gradient sign method."""

    def ahead(self, state: MomentumState) -> Tensor:
        return state.point
