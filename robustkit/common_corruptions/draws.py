"""Random numbers of one picture under one corruption: a function of seed, picture, corruption and severity."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robustkit.primitives import noise

Array = NDArray[np.floating[Any]]

_STREAM = 0x434F5252  # keeps these numbers apart from the noise of attacks


def stream_keys(seed: int, pictures: Sequence[int], corruption: int, severity: int) -> torch.Tensor:
    """`[B]` keys of the streams of pictures.

    Args:
        seed: of the run.
        pictures: their numbers in the data set.
        corruption: place of the corruption in the paper's list.
        severity: 1 to 5.
    """
    numbers = torch.tensor(list(pictures), dtype=torch.int64, device="cpu")
    parts = (torch.full_like(numbers, part) for part in (_STREAM, corruption, severity))
    return noise.keys(seed, numbers, *parts)


class Draws:
    """A stream of random numbers; each call continues it.

    Args:
        key: `[1]` of the stream, from `stream_keys`.
    """

    def __init__(self, key: torch.Tensor) -> None:
        self._key = key
        self._draw = 0

    def uniform(self, *shape: int) -> Array:
        """Numbers in [0, 1), multiples of 2^-53."""
        bits = noise.bits(self._key, self._draw, int(np.prod(shape)))[0].numpy().view(np.uint64)
        self._draw += 1
        return ((bits >> np.uint64(11)) * 2.0**-53).reshape(shape)

    def normal(self, *shape: int) -> Array:
        """Standard normal numbers (Box & Muller).

        In float64: processors differ in the last digit of log and cos, which then changes no 8-bit value in practice.
        """
        count = int(np.prod(shape))
        radius, angle = self.uniform(2, (count + 1) // 2)
        radius = np.sqrt(-2 * np.log1p(-radius))
        angle = 2 * np.pi * angle
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count].reshape(shape)

    def between(self, low: float, high: float, shape: Sequence[int] = ()) -> Array:
        """Numbers in [low, high)."""
        return low + (high - low) * self.uniform(*shape)
