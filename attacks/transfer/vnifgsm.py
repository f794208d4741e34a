"""VNI-FGSM: NI-FGSM whose gradients are corrected by how the gradient varies around the previous iterate.

Wang & He 2021, arXiv:2103.15571; see `vmifgsm`. As in the authors' code, the neighbours are drawn around the iterate,
not around the look-ahead point.
Bad at: small budgets; a step costs 21 queries.
"""

from dataclasses import dataclass

from torch import Tensor

from ..gradient._momentum import MomentumState
from ._variance import VarianceTuning


@dataclass(frozen=True)
class VNIFGSM(VarianceTuning):
    """Variance-tuned Nesterov iterative fast gradient sign method."""

    def ahead(self, state: MomentumState) -> Tensor:
        return self.look_ahead(state)
