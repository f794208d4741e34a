"""VMI-FGSM: MI-FGSM whose gradients are corrected by how the gradient varies around the previous iterate.

Wang & He 2021, arXiv:2103.15571: the correction is the mean gradient at N random neighbours of the previous iterate,
minus the gradient at that iterate. Ours differs: after the last step no neighbours are queried, because nothing would
use them. In L2, the largest difference of each value is divided by the square root of the number of values.
Bad at: small budgets; a step costs 21 queries.
"""

from dataclasses import dataclass

from ._variance import VarianceTuning


@dataclass(frozen=True)
class VMIFGSM(VarianceTuning):
    """Variance-tuned momentum iterative fast gradient sign method."""
