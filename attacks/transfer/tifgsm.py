"""TI-FGSM: MI-FGSM along gradients that are blurred, as if they were averaged over shifted images.

Dong et al. 2019, arXiv:1904.02884: for a network that is nearly invariant to small shifts, the gradient at a shifted
image is the shifted gradient at the image, so that a convolution with a kernel can replace the average over shifts.
`diversity=0.5` gives their TI-DIM. Their kernel of 15 x 15 is for images of 299 pixels and would cover a small image,
so the default grows with the image.
Bad at: white-box strength, and networks without adversarial training, on which it transfers worse than MI-FGSM.
"""

from dataclasses import KW_ONLY, dataclass

from ._copies import Copies


@dataclass(frozen=True)
class TIFGSM(Copies):
    """Translation-invariant iterative fast gradient sign method, with momentum."""

    _: KW_ONLY
    kernel: int | None = None
