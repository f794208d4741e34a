"""The basis of the discrete cosine transform (DCT-II), for smooth directions, to which many networks are sensitive."""

import math
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives import noise

from ._schedules import beside

# On an image of 8 x 8, a quarter of each side would leave only 2 x 2 directions: too few to come near an error.
_FEWEST = 8


@cache
def cosines(side: int) -> Tensor:
    """`[side, side]` orthonormal float64 cosines, one per row, from the constant to the highest frequency."""
    number = torch.arange(side, device="cpu", dtype=torch.float64)
    waves = (number.unsqueeze(1) * (number + 0.5) * (math.pi / side)).cos() * math.sqrt(2 / side)
    waves[0] /= math.sqrt(2)
    return waves


def smooth_noise(x: Tensor, key: Tensor, draw: Tensor, share: float) -> Tensor:
    """`[B, C, H, W]` normal noise of low frequencies: the lowest `share` of those of each side, at least 8."""
    channels, height, width = x.shape[1:]
    tall, wide = (beside(cosines(side), x)[: max(math.ceil(share * side), _FEWEST)] for side in (height, width))
    weights = noise.normal(key, draw, (channels, len(tall), len(wide))).to(x)
    # Sums of products, one wave at a time: a matrix product may round differently in another batch size.
    rows = torch.zeros(len(x), channels, len(tall), width, device=x.device, dtype=x.dtype)
    for number, wave in enumerate(wide):
        rows = rows + weights[..., number : number + 1] * wave
    total = torch.zeros_like(x)
    for number, wave in enumerate(tall):
        total = total + rows[:, :, number : number + 1] * wave.unsqueeze(1)
    return total
