"""PMA: ascent on one term of the margin of the probabilities, then on the margin (probability margin attack).

Xie et al. 2024, arXiv:2411.15210: MD (`_decomposition.py`) on probabilities instead of logits. Ours differs: it takes
the log-odds of the true class, the logarithm of the wrong class's probability and, for the margin m, log(1 + m). These
rise with the published values and have gradients of the same direction, which do not vanish on confident models.
Bad at: networks without imbalanced gradients, like MD.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.protocol import Trials

from ._decomposition import Decomposition, likeliest_wrong


@dataclass(frozen=True)
class PMA(Decomposition):
    """Probability margin attack in Linf, half of its steps in the first stage; arguments as in `Decomposition`."""

    _: KW_ONLY
    steps: int = 100

    first_share = 0.5

    def right(self, logits: Tensor, trials: Trials) -> Tensor:
        return -losses.log_odds(logits, trials.y)

    def wrong(self, logits: Tensor, trials: Trials) -> Tensor:
        return likeliest_wrong(logits, trials) - logits.logsumexp(1)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss("softmax-margin")(logits, trials.y, trials.loss_target)
