"""MD: ascent on one term of the margin of the logits, then on the margin itself (margin decomposition).

Ma et al. 2020, arXiv:2006.13726; see `_decomposition.py`. With targets=9 it is the authors' MDMT.
Bad at: networks without imbalanced gradients, for which the first stage is wasted; networks whose logits rise and fall
together, because that changes one term but no margin.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.protocol import Trials

from ._decomposition import Decomposition, likeliest_wrong


@dataclass(frozen=True)
class MD(Decomposition):
    """Margin decomposition attack in Linf, 40 % of its steps in the first stage; arguments as in `Decomposition`."""

    _: KW_ONLY
    steps: int = 50

    first_share = 0.4

    def right(self, logits: Tensor, trials: Trials) -> Tensor:
        return logits.gather(1, trials.y.unsqueeze(1)).squeeze(1)

    def wrong(self, logits: Tensor, trials: Trials) -> Tensor:
        return likeliest_wrong(logits, trials)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss("margin")(logits, trials.y, trials.loss_target)
