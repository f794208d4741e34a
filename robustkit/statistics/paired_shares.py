"""Two classifiers on several versions of the same images: how far their mean shares of correct verdicts differ.

An image counts with the number of its versions that are classified correctly, so versions of one image are never taken
for independent ones. With one version for each image the test is McNemar's, and the interval that of Bonett & Price.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_Z = 1.959963984540054  # two-sided 95 %
_SMALLEST = 1e-15  # a Fourier sum of chances is no more exact than that, and 0 is no p-value

Counts = NDArray[np.integer[Any]]


class ShareTest(NamedTuple):
    """Mean share of the first classifier minus that of the second, on n images."""

    n: int
    first_better: int  # images of which the first gets more versions right
    second_better: int  # the others are equal
    difference: float
    low: float  # its 95 % interval
    high: float
    p: float


def share_test(first: Counts, second: Counts, versions: int, *, first_is_lower: bool = False) -> ShareTest:
    """The exact sign-flip test and an interval for `[n]` numbers of versions that are right, each out of `versions`.

    The test asks how probable a difference at least as large is if the two classifiers change places on each image by
    chance. The interval is Wald's with two images more, one on which each classifier alone is right, so that it is not
    empty where no image differs. A p-value below 1e-15 is given as 1e-15.

    Args:
        first: of the first classifier.
        second: of the second one, for the same images in the same order.
        versions: of each image.
        first_is_lower: one-sided: only a first classifier that is worse counts.

    Source: Fisher 1935, The Design of Experiments, section 21; Bonett & Price 2012, Journal of Educational and
    Behavioral Statistics 37:479.
    """
    delta = first.astype(np.int64) - second.astype(np.int64)
    better, worse, n = int((delta > 0).sum()), int((delta < 0).sum()), len(delta)
    if not n:
        return ShareTest(0, 0, 0, math.nan, math.nan, math.nan, 1.0)
    p = _probability(delta, one_sided=first_is_lower)
    return ShareTest(n, better, worse, float(delta.mean()) / versions, *_interval(delta / versions), p)


def _interval(delta: NDArray[np.floating[Any]]) -> tuple[float, float]:
    n = len(delta) + 2
    mean = float(delta.sum()) / n
    variance = (float((delta**2).sum()) + 2) / n - mean**2
    reach = _Z * math.sqrt(max(0.0, variance) / n)
    return max(-1.0, mean - reach), min(1.0, mean + reach)


def _probability(delta: Counts, *, one_sided: bool) -> float:
    """The probability of a sum at least as far from 0 as that of `delta` if each sign is a fair coin."""
    total, reach = int(delta.sum()), int(np.abs(delta).sum())
    if not reach or (total >= 0 and one_sided):
        return 1.0
    # The sum is a lattice variable: its characteristic function is a product of cosines, one factor for each size.
    sizes, times = np.unique(np.abs(delta[delta != 0]), return_counts=True)
    points = 2 * reach + 1
    angles = 2 * math.pi * np.arange(points) / points
    transform = np.ones(points)
    for size, count in zip(sizes, times, strict=True):
        transform *= np.cos(size * angles) ** int(count)
    chances = np.fft.fft(transform).real / points  # of sums 0, 1, ..., reach, -reach, ..., -1
    beyond = float(chances[abs(total) : reach + 1].sum())
    return min(1.0, max(_SMALLEST, beyond if one_sided else 2 * beyond))
