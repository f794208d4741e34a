"""The smallest difference between two accuracies that n images show with a stated chance, the power of the test.

Two comparisons: of models on different samples of images (unpaired, the test of two proportions), and on the same
images (paired, McNemar 1947). A paired test sees the least where one model is right wherever the other is; the more
their errors differ both ways, the less, down to what the unpaired test sees where they are independent.
"""

import math
from typing import Final

POWER: Final = 0.8
LEVEL: Final = 0.05  # two-sided

_TURNS = 40  # bisections: to 1e-12


def detectable_unpaired(share: float, n: int) -> float | None:
    """The difference from an accuracy that is seen on two samples of n images; None if none is.

    Of the two directions that of the larger difference. Source: the normal approximation of Fleiss, Levin & Paik 2003,
    section 4.2, without the correction for continuity.

    Args:
        share: the accuracy of one model.
        n: images in each sample.
    """
    found = [_smallest(share, n, sign, room) for sign, room in ((1, 1 - share), (-1, share))]
    return max((value for value in found if value is not None), default=None)


def detectable_paired(n: int) -> float | None:
    """The difference that McNemar's exact test sees on the same n images, if only one model errs; None if none is."""
    from scipy.special import bdtrc

    # The fewest images that must turn: with k of k in one direction, the test's p is 2 / 2^k.
    fewest = math.ceil(1 - math.log2(LEVEL))
    if n < fewest:
        return None
    low, high = 0.0, 1.0
    for _ in range(_TURNS):
        middle = (low + high) / 2
        low, high = (low, middle) if bdtrc(fewest - 1, n, middle) >= POWER else (middle, high)
    return high


def _smallest(share: float, n: int, sign: int, room: float) -> float | None:
    if not _is_seen(share, share + sign * room, n):
        return None
    low, high = 0.0, room
    for _ in range(_TURNS):
        middle = (low + high) / 2
        low, high = (low, middle) if _is_seen(share, share + sign * middle, n) else (middle, high)
    return high


def _is_seen(one: float, other: float, n: int) -> bool:
    """Whether the test of two proportions has the power."""
    from scipy.special import ndtri

    mean = (one + other) / 2
    critical = ndtri(1 - LEVEL / 2) * math.sqrt(2 * mean * (1 - mean) / n)
    spread = math.sqrt(max(0.0, one * (1 - one) + other * (1 - other)) / n)
    return bool(abs(one - other) - critical >= ndtri(POWER) * spread)
