"""StAdv: a smooth flow field moves the pixels until the image is misclassified.

Xiao et al. 2018, arXiv:1801.02612: the loss less `smoothness` times the total variation of the flow. Ours differs: Adam
in place of L-BFGS; the flow is projected on the largest displacement, which the paper does not bound; and the weight
falls to a thousandth, because no fixed one suits networks whose logits differ in size.
Bad at: few steps; `pgd` needs fewer, for flows that show ten times as much.
"""

from dataclasses import dataclass

from ._smooth import SmoothAscent


@dataclass(frozen=True)
class StAdv(SmoothAscent):
    """Spatially transformed adversarial examples.

    Args:
        step_size: length of Adam's steps, in pixels; None is a tenth of eps.
    """

    norms = ("flow",)

    @property
    def step_length(self) -> float:
        return self.ball.eps / 10 if self.step_size is None else self.step_size
