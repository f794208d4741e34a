"""Two classifiers on the same images: which one's nearest errors are farther away.

The sign test: of the images where one distance is larger, how many are larger for the first. It asks nothing of the
distances but their order, so it holds for any distribution, and for images of which no error is known for one model
(its nearest error is farther than any that is known). A signed-rank test, or the estimate of Hodges & Lehmann, needs
differences that are symmetric and all known; distances of errors are neither.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_LEVEL = 0.95

Floats = NDArray[np.floating[Any]]


class DistanceTest(NamedTuple):
    """The distances of a first and a second classifier on n images."""

    n: int
    first_farther: int
    second_farther: int  # the others are equal, or unknown for both
    difference: float  # median of first minus second over images; NaN where it lies among unknown ones
    low: float  # its 95 % interval, infinite where it reaches unknown ones
    high: float
    p: float  # exact, two-sided


def sign_test(first: Floats, second: Floats) -> DistanceTest:
    """The sign test of `[n]` distances, infinity standing for "farther than all that is known".

    The interval lies between two order statistics of the differences (Conover, Practical Nonparametric Statistics).
    Where both distances are unknown, so is the difference: it counts as lowest for the lower end and as highest for the
    upper one.
    """
    from scipy.stats import binomtest

    farther, nearer = int((first > second).sum()), int((first < second).sum())
    p = float(binomtest(farther, farther + nearer, 0.5).pvalue) if farther + nearer else 1.0
    both = np.isinf(first) & np.isinf(second)
    known = np.where(both, 0.0, first) - np.where(both, 0.0, second)
    lowest, highest = np.sort(np.where(both, -math.inf, known)), np.sort(np.where(both, math.inf, known))
    low, high = _ends(lowest, highest)
    middle = _middle(lowest), _middle(highest)
    return DistanceTest(len(first), farther, nearer, middle[0] if middle[0] == middle[1] else math.nan, low, high, p)


def _ends(lowest: Floats, highest: Floats) -> tuple[float, float]:
    from scipy.stats import binom

    n, tail = len(lowest), (1 - _LEVEL) / 2
    # As many differences as may lie outside on one side with a probability of at most the tail.
    outside = int(binom.ppf(tail, n, 0.5)) if n else 0
    outside -= binom.cdf(outside, n, 0.5) > tail
    return (float(lowest[outside]), float(highest[n - 1 - outside])) if 0 <= outside < n else (-math.inf, math.inf)


def _middle(ordered: Floats) -> float:
    n = len(ordered)
    if not n:
        return math.nan
    one, two = float(ordered[(n - 1) // 2]), float(ordered[n // 2])
    return one if one == two else (one + two) / 2
