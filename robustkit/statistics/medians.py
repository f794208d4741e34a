"""Medians of values of which some are unknown because they are large, with an interval."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Median(NamedTuple):
    """A median with its 95 % interval; infinite where it lies among the unknown values, NaN of no values."""

    value: float
    low: float
    high: float


def median(values: Sequence[float], level: float = 0.95) -> Median:
    """The median of `values`, infinity standing for "larger than all that is known".

    The interval is that of the sign test, between two order statistics, and holds for any distribution: the number of
    values below the true median is binomial with probability 1/2 (Conover, Practical Nonparametric Statistics, 3.2).
    """
    from scipy import stats

    if not values:
        return Median(math.nan, math.nan, math.nan)
    ordered, n = sorted(values), len(values)
    low, high = ordered[(n - 1) // 2], ordered[n // 2]
    # As many values as may lie below the median with a probability of at most half of what the level leaves.
    outside = int(stats.binom.ppf((1 - level) / 2, n, 0.5)) - 1
    if stats.binom.cdf(outside + 1, n, 0.5) <= (1 - level) / 2:
        outside += 1
    ends = (ordered[outside], ordered[n - 1 - outside]) if outside >= 0 else (0.0, math.inf)
    return Median(low if low == high else (low + high) / 2, *ends)
