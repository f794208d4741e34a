"""An interval that stays valid when a run stops as soon as it is narrow: a confidence sequence.

A usual 95 % interval holds for a number of images that was fixed before. Whoever looks after every image and stops at a
narrow interval is wrong more often. A confidence sequence covers at all numbers of images together with 95 %, so it
may be looked at, and stopped at, whenever one likes.

The images are a random sample of a data set, drawn without replacement, so the accuracy on all of its N images is what
is estimated, and nothing is unknown once all are seen. Source: Waudby-Smith & Ramdas 2020, "Confidence sequences for
sampling without replacement", arXiv:2006.04347, the prior-posterior-ratio martingale, here with the uniform prior on
the number of right images among the N. The ratio of the prior to the posterior of the true number is a martingale that
starts at 1, so by Ville's inequality it ever reaches 1 / alpha with a probability of at most alpha.
"""

import math
from functools import lru_cache
from typing import Final

from robustkit.statistics.intervals import Proportion

ALPHA: Final = 0.05
_SLACK = 1e-9  # of a logarithm: rounding must not cut off a number on the edge


@lru_cache(maxsize=4096)
def sequence(k: int, n: int, population: int) -> Proportion:
    """The share k / n of the images seen, and the interval for the share among all of the population.

    Raises:
        ValueError: not 0 <= k <= n <= population.
    """
    if not 0 <= k <= n <= population:
        raise ValueError(f"A sequence needs 0 <= k <= n <= N, not k = {k}, n = {n} and N = {population}.")
    if n == 0:
        return Proportion(math.nan, math.nan, math.nan, "none")
    least, most = k, population - (n - k)  # right images of the population that agree with those seen
    peak = min(max(round(k / n * population), least), most)
    low = _edge(peak, least, k, n, population)
    high = _edge(peak, most, k, n, population)
    return Proportion(k / n, low / population, high / population, "confidence-sequence")


def images_needed(share: float, precision: float, population: int, *, seen: int = 0) -> int:
    """How many images give an interval of at most +-`precision` if `share` of them are right; more than `seen`.

    Args:
        share: from 0 to 1.
        precision: half of the interval's length.
        population: images of the data set.
        seen: the answer is larger, as far as there are more images.
    """
    low, high = min(seen + 1, population), population
    while low < high:
        middle = (low + high) // 2
        # Of a share that no whole number of images gives, the count nearer to a half is the harder one.
        k = math.ceil(share * middle) if share < 0.5 else math.floor(share * middle)
        low, high = (low, middle) if half_width(sequence(k, middle, population)) <= precision else (middle + 1, high)
    return low


def half_width(share: Proportion) -> float:
    """Half of the interval's length."""
    return (share.high - share.low) / 2


def _edge(inside: int, outermost: int, k: int, n: int, population: int) -> int:
    """The last number of right images, from `inside` towards `outermost`, whose ratio stays below 1 / alpha.

    The likelihood is log-concave in that number, so the numbers inside are neighbours and bisection finds the last.
    """
    if _stands(outermost, k, n, population):
        return outermost
    while abs(outermost - inside) > 1:
        middle = (inside + outermost) // 2
        inside, outermost = (middle, outermost) if _stands(middle, k, n, population) else (inside, middle)
    return inside


def _stands(right: int, k: int, n: int, population: int) -> bool:
    """Whether the ratio of the prior to the posterior of so many right images is below 1 / alpha.

    That ratio is the probability of the verdicts in their order, averaged over the prior, by their probability if
    `right` images are right.
    """
    average = math.lgamma(k + 1) + math.lgamma(n - k + 1) - math.lgamma(n + 2)
    own = _falling(right, k) + _falling(population - right, n - k) - _falling(population, n)
    return average - own < math.log(1 / ALPHA) + _SLACK


def _falling(number: int, factors: int) -> float:
    """The logarithm of number * (number - 1) * ..., so many factors of it."""
    return math.lgamma(number + 1) - math.lgamma(number - factors + 1)
