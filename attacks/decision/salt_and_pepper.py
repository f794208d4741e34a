"""Salt and pepper: more and more pixels become white or black until the image is misclassified.

As in foolbox (Rauber et al. 2017, arXiv:1707.04131). Ours differs: the noise of one draw grows pixel by pixel, so a
bisection can follow an error, and the next draw is queried just as far away as the nearest error. The defaults make
many draws with few queries each; they were chosen on smallcnn_mnist and resnet2b_cifar (`bench/noise.py`).
Bad at: images of many pixels, because its directions are random.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

from ._walk import Walk


@dataclass(frozen=True)
class SaltAndPepper(Walk):
    """Images of which a share of the pixels is white or black.

    Args:
        queries: forward passes per trial, at least 2.
        steps: number of shares of changed pixels that are queried in one draw.
        halvings: queries of the bisection before the first error among them.
        across_channels: change all channels of a pixel alike.
    """

    _: KW_ONLY
    queries: int = 1000
    steps: int = 1
    halvings: int = 6
    across_channels: bool = True

    norms = ("L2", "L1", "L0")
    one_family = False

    def family(self, trials: Trials, draw: Tensor) -> Tensor:
        channels, *sides = trials.x.shape[1:]
        shape = (1, *sides) if self.across_channels and sides else (channels, *sides)
        return noise.uniform(trials.key, draw, shape).to(trials.x)

    def member(self, x: Tensor, family: Tensor, share: Tensor) -> Tensor:
        half = along(share, x).to(x) / 2
        return torch.where(family < half, 0.0, torch.where(family >= 1 - half, 1.0, x)).to(x)
