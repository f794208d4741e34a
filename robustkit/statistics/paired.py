"""Two classifiers on the same images: how far their accuracies differ, and whether that may be luck.

Images that both get right, or both wrong, say nothing about which one is better; the others decide. A comparison of two
separate intervals forgets this and sees far less.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robustkit.statistics.intervals import proportion

_Z = 1.959963984540054  # two-sided 95 %


class PairedCounts(NamedTuple):
    """How many images the first and the second classifier get right."""

    both: int
    first_only: int
    second_only: int
    neither: int

    @property
    def n(self) -> int:
        """All images."""
        return sum(self)


class PairedDifference(NamedTuple):
    """Accuracy of the first minus that of the second, with its 95 % interval, all in [-1, 1]; NaN where n = 0."""

    value: float
    low: float
    high: float


def paired_counts(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> PairedCounts:
    """The counts of two arrays of verdicts on the same images, in the same order."""
    groups = (first & second, first & ~second, ~first & second, ~first & ~second)
    return PairedCounts(*(int(group.sum()) for group in groups))


def paired_difference(counts: PairedCounts) -> PairedDifference:
    """The difference of two accuracies on the same images with its interval.

    Source: Newcombe 1998, Statistics in Medicine 17:2635, method 10: Wilson's intervals of both accuracies, joined by
    the correlation of the verdicts, which is corrected for continuity.
    """
    both, first_only, second_only, neither = counts
    n = counts.n
    if n == 0:
        return PairedDifference(math.nan, math.nan, math.nan)
    first, second = both + first_only, both + second_only
    difference = (first_only - second_only) / n
    (one, low_one, high_one), (two, low_two, high_two) = _wilson(first, n), _wilson(second, n)
    together = both * neither - first_only * second_only
    shrunk = together if together < 0 else max(together - n / 2, 0)
    spread = math.sqrt(first * (n - first) * second * (n - second))
    phi = shrunk / spread if spread else 0.0
    below = _length(one - low_one, high_two - two, phi)
    above = _length(high_one - one, two - low_two, phi)
    return PairedDifference(difference, max(difference - below, -1.0), min(difference + above, 1.0))


def mcnemar(counts: PairedCounts, *, first_is_lower: bool = False) -> float:
    """The probability of verdicts that differ at least as much between two classifiers that are equally good.

    Exact, from the binomial distribution of the images that only one of them gets right; 1 if there are none.

    Args:
        counts: of the verdicts.
        first_is_lower: one-sided: only a first classifier that is worse counts.

    Source: McNemar 1947, Psychometrika 12:153.
    """
    from scipy.stats import binomtest

    decided = counts.first_only + counts.second_only
    if not decided:
        return 1.0
    alternative = "less" if first_is_lower else "two-sided"
    return float(binomtest(counts.first_only, decided, 0.5, alternative=alternative).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of several tests, corrected so that all verdicts together err with the level's probability.

    Source: Holm 1979, Scandinavian Journal of Statistics 6:65.
    """
    corrected, least = [math.nan] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return corrected


def _wilson(k: int, n: int) -> tuple[float, float, float]:
    # Also where k is 0 or n, where a single proportion has the interval of Clopper and Pearson.
    if 0 < k < n:
        share = proportion(k, n)
        return share.value, share.low, share.high
    end = _Z**2 / (n + _Z**2)
    return (0.0, 0.0, end) if k == 0 else (1.0, 1 - end, 1.0)


def _length(one: float, two: float, phi: float) -> float:
    # Rounding can take the sum below zero where phi is 1.
    return math.sqrt(max(0.0, one**2 - 2 * phi * one * two + two**2))
