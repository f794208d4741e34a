"""MI-FGSM: iterative FGSM with momentum (heavy ball), whose examples transfer better between models.

Dong et al. 2018, arXiv:1710.06081; the step is in `_momentum.py`.
Bad at: white-box strength; with steps of length eps / steps it cannot make up for a wrong direction.
"""

from dataclasses import dataclass

from torch import Tensor

from ._momentum import Momentum, MomentumState


@dataclass(frozen=True)
class MIFGSM(Momentum):
    """Momentum iterative fast gradient sign method in Linf or L2."""

    def ahead(self, state: MomentumState) -> Tensor:
        return state.point
