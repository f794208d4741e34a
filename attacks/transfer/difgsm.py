"""DI-FGSM: MI-FGSM whose every gradient is taken, with some probability, at a randomly resized and padded image.

Xie et al. 2019, arXiv:1803.06978, with the momentum of their M-DI2-FGSM. They enlarge 299 pixels to 299 ... 330 and pad
to 330; here the network's input keeps its size, so the image shrinks by the same ratio, and both sides of an image that
is not square by one ratio. Resizing is bilinear, where the authors take the nearest pixel.
Bad at: white-box strength.
"""

from dataclasses import KW_ONLY, dataclass

from ._copies import Copies


@dataclass(frozen=True)
class DIFGSM(Copies):
    """Diverse inputs iterative fast gradient sign method, with momentum."""

    _: KW_ONLY
    diversity: float = 0.5
