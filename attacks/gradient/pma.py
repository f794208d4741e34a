"""PMA: the margin of the probabilities, climbed one term first (probability margin attack).

Xie et al. 2024, arXiv:2411.15210: MD (`_decomposition.py`) on probabilities instead of logits. Ours differs: each
probability stands for its logarithm or its log-odds, and the margin for the logarithm of one plus it. These rise with
the published values and have gradients of the same direction, which do not vanish on confident models.
Bad at: what MD is bad at.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.protocol import Trials

from ._decomposition import Decomposition, likeliest_wrong


@dataclass(frozen=True)
class PMA(Decomposition):
    """Probability margin attack: half of the steps in the first stage; its arguments are those of `Decomposition`."""

    _: KW_ONLY
    steps: int = 100

    first_share = 0.5

    def right(self, logits: Tensor, trials: Trials) -> Tensor:
        return -losses.log_odds(logits, trials.y)

    def wrong(self, logits: Tensor, trials: Trials) -> Tensor:
        return likeliest_wrong(logits, trials) - logits.logsumexp(1)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss("softmax-margin")(logits, trials.y, trials.loss_target)
