"""ReColorAdv: a smooth function of colours, the same at every pixel, until the image is misclassified.

Laidlaw & Feizi 2019, arXiv:1906.00001: the loss less `smoothness` times the total variation of the colours' shifts, by
Adam; its bound is 0.06. Ours differs: the weight of the smoothness falls to a thousandth, because no fixed one suits
networks whose logits differ in size.
Bad at: images of few colours, most of whose grid no pixel reads; few steps, where `pgd` needs fewer for rougher shifts.
"""

from dataclasses import dataclass

from ._smooth import SmoothAscent


@dataclass(frozen=True)
class ReColorAdv(SmoothAscent):
    """Functional recolouring.

    Args:
        step_size: length of Adam's steps, in units of a channel's range; None is eps / 60, the authors' 0.001 at 0.06.
    """

    norms = ("recolor", "recolor_rgb")

    @property
    def step_length(self) -> float:
        return self.ball.eps / 60 if self.step_size is None else self.step_size
