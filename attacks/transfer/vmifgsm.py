"""VMI-FGSM: MI-FGSM whose gradients are corrected by how the gradient varies in the last iterate's neighbourhood.

Wang & He 2021, arXiv:2103.15571: the correction is the mean gradient of N random neighbours, minus that of the iterate.
Ours leaves out the neighbours of the last step, which no step uses. In L2 a neighbour is as far away as one whose
values all move alike.
Bad at: few passes; a step costs 21 queries.
"""

from dataclasses import dataclass

from ._variance import VarianceTuning


@dataclass(frozen=True)
class VMIFGSM(VarianceTuning):
    """Variance-tuned momentum iterative fast gradient sign method."""
