"""BIM (I-FGSM): FGSM repeated in small steps from the image itself, each projected onto the ball.

Kurakin et al. 2017, arXiv:1607.02533. Ours differs: the loss is the non-saturating form of cross-entropy, and there are
L2 and L1 forms.
Bad at: images at which the gradient vanishes; PGD starts at a random point and so avoids them.
"""

from dataclasses import dataclass

from torch import Tensor

from robustkit.primitives.ascent import SteepestAscent
from robustkit.primitives.protocol import Trials


@dataclass(frozen=True)
class BIM(SteepestAscent):
    """Basic iterative method in Linf, L2 or L1.

    Args:
        steps: gradient steps per trial.
        step_size: length of a step, in units of the input; None is eps / steps, which just reaches the ball's surface.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
    """

    norms = ("Linf", "L2", "L1")

    def start(self, trials: Trials) -> Tensor:
        return trials.x
