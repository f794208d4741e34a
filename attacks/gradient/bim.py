"""BIM (I-FGSM): FGSM in small steps from the image itself, projected after each.

Kurakin et al. 2017, arXiv:1607.02533. Ours differs: the non-saturating form of cross-entropy, and any norm.
Bad at: images where the gradient vanishes at the image itself; PGD's random start leaves those points.
"""

from dataclasses import dataclass

from torch import Tensor

from robustkit.primitives.ascent import SteepestAscent
from robustkit.primitives.protocol import Trials


@dataclass(frozen=True)
class BIM(SteepestAscent):
    """Basic iterative method.

    Args:
        steps: gradient steps.
        step_size: length of a step, in units of the input; None is eps / steps, which just reaches the ball's surface.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
    """

    norms = ("Linf", "L2", "L1")

    def start(self, trials: Trials) -> Tensor:
        return trials.x
