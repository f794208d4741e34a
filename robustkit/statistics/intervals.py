"""Intervals for proportions: how far an accuracy measured on n images can be trusted.

Wilson 1927; at k = 0 and k = n, where Wilson's interval is too short, Clopper & Pearson 1934. scipy computes both.
"""

from typing import Literal, NamedTuple

Method = Literal["wilson", "clopper-pearson", "none"]


class Proportion(NamedTuple):
    """A share of n images with its 95 % interval, all in [0, 1], NaN where n = 0."""

    value: float
    low: float
    high: float
    method: Method


def proportion(k: int, n: int) -> Proportion:
    """The share k / n with its 95 % interval.

    Raises:
        ValueError: k is not in 0..n.
    """
    if not 0 <= k <= n:
        raise ValueError(f"A proportion needs 0 <= k <= n, not k = {k} and n = {n}.")
    if n == 0:
        return Proportion(float("nan"), float("nan"), float("nan"), "none")
    from scipy.stats import binomtest

    method: Method = "clopper-pearson" if k in (0, n) else "wilson"
    interval = binomtest(k, n).proportion_ci(method="exact" if method == "clopper-pearson" else "wilson")
    return Proportion(k / n, float(interval.low), float(interval.high), method)
