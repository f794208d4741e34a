"""Which images an evaluation of n samples uses: a fixed pseudo-random order, the same in every version."""

import numpy as np
from numpy.typing import NDArray

from robustkit.errors import UserError

# Any constant works, but it must never change: it decides which images every stored result is about.
SEED = 0x726F627573746B69


def pick(count: int, n: int | None = None) -> list[int]:
    """The numbers of the first `n` of `count` images, all of them if `n` is None or larger.

    Images are ordered by a hash of their number. So the first `n` are also the first of `n + 1`, and a data set that is
    sorted by class is sampled evenly.

    Raises:
        UserError: `n` is below 1.
    """
    if n is not None and n < 1:
        raise UserError(f"The number of samples must be at least 1, not {n}.")
    order = np.argsort(_mixed(np.arange(count, dtype=np.uint64)), kind="stable")
    return [int(number) for number in order[:n]]


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Output number `number + 1` of SplitMix64 (Steele et al. 2014) with the state `SEED` at the start."""
    z = np.uint64(SEED) + (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
