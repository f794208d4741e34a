"""Intervals for proportions: how far an accuracy measured on n images can be trusted.

Wilson 1927; at k = 0 and k = n, where Wilson's interval is too short, Clopper & Pearson 1934, which scipy computes.
(scipy also has Wilson's, with the same bits, but scipy.stats takes half a second to import.)
"""

import math
from functools import lru_cache
from typing import Literal, NamedTuple

Method = Literal["wilson", "clopper-pearson", "confidence-sequence", "none"]


class Proportion(NamedTuple):
    """A share of n images with its 95 % interval, all in [0, 1], NaN where n = 0."""

    value: float
    low: float
    high: float
    method: Method


@lru_cache(maxsize=4096)  # a table has many equal counts
def proportion(k: int, n: int) -> Proportion:
    """The share k / n with its 95 % interval.

    Raises:
        ValueError: k is not in 0..n.
    """
    if not 0 <= k <= n:
        raise ValueError(f"A proportion needs 0 <= k <= n, not k = {k} and n = {n}.")
    if n == 0:
        return Proportion(float("nan"), float("nan"), float("nan"), "none")
    if k in (0, n):
        from scipy.stats import binomtest

        exact = binomtest(k, n).proportion_ci(method="exact")
        return Proportion(k / n, float(exact.low), float(exact.high), "clopper-pearson")
    from scipy.special import ndtri

    share, z = k / n, float(ndtri(0.975))
    centre = (2 * n * share + z**2) / (2 * (n + z**2))
    half = z / (2 * (n + z**2)) * math.sqrt(4 * n * share * (1 - share) + z**2)
    return Proportion(share, centre - half, centre + half, "wilson")


def upper_bound(k: int, n: int) -> float:
    """The largest share that is compatible with k of n: the one-sided 95 % bound of Clopper and Pearson, NaN for n = 0.

    It is exact for draws with replacement and cautious for draws without.

    Raises:
        ValueError: k is not in 0..n.
    """
    if not 0 <= k <= n:
        raise ValueError(f"A bound on a share needs 0 <= k <= n, not k = {k} and n = {n}.")
    if n == 0:
        return float("nan")
    from scipy.stats import binomtest

    return float(binomtest(k, n, alternative="less").proportion_ci(method="exact").high)


def mean_of_shares(total: float, n: int) -> Proportion:
    """The mean of n numbers in [0, 1] that add up to `total`, with its 95 % interval.

    The interval of Clopper and Pearson for `total` successes, whole or not. No numbers in [0, 1] vary more than zeros
    and ones with the same mean, so it covers the choice of the n images and what is random in each number. In
    simulations of 1 to 500 images, 16 draws each, it covered in 95 % of 3,000 cases or more.

    Raises:
        ValueError: total is not in 0..n.

    Source: Korn & Graubard 1998, Survey Methodology 24:193, with an effective sample size of n.
    """
    if not 0 <= total <= n:
        raise ValueError(f"A mean of shares needs 0 <= total <= n, not total = {total} and n = {n}.")
    if n == 0:
        return Proportion(float("nan"), float("nan"), float("nan"), "none")
    from scipy.special import betaincinv

    low = float(betaincinv(total, n - total + 1, 0.025)) if total else 0.0
    high = float(betaincinv(total + 1, n - total, 0.975)) if total < n else 1.0
    return Proportion(total / n, low, high, "clopper-pearson")
