"""SI-NI-FGSM: NI-FGSM along the gradient averaged over copies of the image at half, a quarter, ... of its contrast.

Lin et al. 2020, arXiv:1908.06281: copy i is the look-ahead point divided by 2^i. Each copy costs a query.
Bad at: white-box strength, and networks that are not nearly invariant to contrast.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives.protocol import Trials

from ..gradient._momentum import MomentumState
from ._copies import Copies
from ._images import dimmed


@dataclass(frozen=True)
class SINIFGSM(Copies):
    """Scale-invariant Nesterov iterative fast gradient sign method.

    Args:
        scales: number of copies; m in the paper.
    """

    _: KW_ONLY
    scales: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "scales")

    @property
    def per_step(self) -> int:
        return self.scales

    def ahead(self, state: MomentumState) -> Tensor:
        return self.look_ahead(state)

    def copied(self, source: Tensor, trials: Trials, number: Tensor) -> Tensor:
        return dimmed(source, number % self.scales, self.scales - 1)
