"""PGD: repeated steepest ascent from a random start, projected onto the ball after each step.

Madry et al. 2018, arXiv:1706.06083. Ours differs: the loss is the non-saturating form of cross-entropy, L1 steps move
the largest 5 % of the gradient's values (Tramer & Boneh 2019), and a trial ends as soon as its image is misclassified.
Bad at: models that mask gradients, and at a large `step_size` with few `steps`.
"""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives.ascent import SteepestAscent
from robustkit.primitives.ball import NORMS
from robustkit.primitives.protocol import Trials


@dataclass(frozen=True)
class PGD(SteepestAscent):
    """Projected gradient descent (on the negated loss).

    Args:
        steps: gradient steps per trial.
        step_size: length of a step, in units of the radius; None is 2.5 * eps / steps (L0: 0.04 for a mean value).
        random_start: begin at a random point of the ball instead of the image itself.
        loss: "log-odds", "ce", "margin", "dlr", or a function of your own (`losses.loss`).
    """

    _: KW_ONLY
    steps: int = 40
    random_start: bool = True

    norms = (*NORMS, "spatial", "rotation", "translation", "flow", "color")

    @property
    def step_length(self) -> float:
        if self.step_size is not None:
            return self.step_size
        return 0.04 if self.ball.norm == "L0" else 2.5 * self.ball.eps / self.steps

    def start(self, trials: Trials) -> Tensor:
        return self.ball.random(trials.x, trials.key, 0) if self.random_start else self.ball.origin(trials.x)
