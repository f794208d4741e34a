"""Threat model that changes the colours of a picture: hue, saturation, brightness and contrast.

Hsiung et al. 2023, arXiv:2202.04235, whose ranges are those of radius 1. Ours differs: hue and saturation turn and
stretch the chroma of YIQ, which is linear and smooth, where they go through HSV; contrast turns around middle grey; the
four changes have one order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.rendered import Rendered
from robustkit.primitives.rounding import wide

_UNITS = (180.0, 0.3, 0.2, 0.3)
# NTSC: two axes of chroma, which hue rotates and saturation stretches, and what they add to red, green and blue.
_CHROMA = ((0.595716, -0.274453, -0.321263), (0.211456, -0.522591, 0.311135))
_BACK = ((0.9563, 0.6210), (-0.2721, -0.6474), (-1.1070, 1.7046))


@dataclass(frozen=True)
class Color(Rendered):
    """Hue by at most `eps` times 180 degrees, saturation 30 %, brightness 0.2 and contrast 30 %, in this order.

    The parameters are the hue in degrees, and the changes of saturation, brightness and contrast.
    """

    norm = "color"
    largest = 1.0
    measure = "times the usual ranges"

    def check(self, shape: Sequence[int]) -> None:
        super().check(shape)
        if shape[0] != 3:
            raise UserError(
                f"The threat color needs images with 3 channels, and these have {shape[0]}; give another threat."
            )

    def unit(self, like: Tensor) -> Tensor:
        return torch.tensor(_UNITS, dtype=like.dtype, device=like.device)

    def render(self, x: Tensor, query: Tensor) -> Tensor:
        hue, saturation, brightness, contrast = query.reshape(*query.shape, 1, 1).unbind(1)
        red, green, blue = x.unbind(1)
        i, q = (first * red + second * green + third * blue for first, second, third in _CHROMA)
        # In float64, as the last digit of a cosine may depend on its place in the batch.
        angle = wide(hue) * (-math.pi / 180)  # from red to green, as in HSV
        cos, sin = angle.cos().to(x), angle.sin().to(x)
        # Changes, not values: where the parameters are zero, every value keeps its bits.
        along, across = (1 + saturation) * cos - 1, (1 + saturation) * sin
        more_i, more_q = along * i - across * q, along * q + across * i
        change = torch.stack([first * more_i + second * more_q for first, second in _BACK], 1)
        colored = (x + change).clamp(0, 1) + brightness.unsqueeze(1)
        return (colored + contrast.unsqueeze(1) * (colored - 0.5)).clamp(0, 1)
