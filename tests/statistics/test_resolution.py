"""The difference that is said to be visible is seen as often as is said, counted in simulated pairs of models."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from robustkit.statistics.resolution import POWER, detectable_paired, detectable_unpaired

DRAWS = 20_000


def seen_unpaired(one: float, other: float, n: int) -> float:
    """How often the test of two proportions finds a difference."""
    rng = np.random.default_rng(0)
    first, second = (rng.binomial(n, share, DRAWS) / n for share in (one, other))
    mean = (first + second) / 2
    error = np.sqrt(2 * mean * (1 - mean) / n)
    return float((np.abs(first - second) > norm.ppf(0.975) * error).mean())


def seen_paired(only_one: float, only_other: float, n: int) -> float:
    """How often McNemar's exact test finds a difference; the shares of images that only one of the models has right."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(n, [only_one, only_other, 1 - only_one - only_other], DRAWS)
    fewer, either = counts[:, :2].min(1), counts[:, :2].sum(1)
    return float((2 * binom.cdf(fewer, either, 0.5) <= 0.05).mean())


# The standard error of a simulated share is 0.3 points. The approximation is worst for few images and rare errors.
@pytest.mark.parametrize(("share", "n", "error"), [(0.454, 504, 0.02), (0.9, 1000, 0.02), (0.1, 100, 0.05)])
def test_an_unpaired_difference_is_seen_with_the_stated_power(share, n, error):
    difference = detectable_unpaired(share, n)
    inner = share + difference if share < 0.5 else share - difference

    assert seen_unpaired(share, inner, n) == pytest.approx(POWER, abs=error)


@pytest.mark.parametrize("n", [50, 504, 10_000])
def test_a_paired_difference_is_seen_with_the_stated_power(n):
    assert seen_paired(detectable_paired(n), 0, n) == pytest.approx(POWER, abs=0.01)


def test_with_independent_errors_a_paired_test_sees_what_an_unpaired_one_sees():
    share, n = 0.454, 504
    other = share + detectable_unpaired(share, n)

    # McNemar's exact test keeps to its level, and is a little weaker for it.
    assert seen_paired(share * (1 - other), other * (1 - share), n) == pytest.approx(POWER, abs=0.04)


def test_half_an_interval_is_neither_of_the_two_differences():
    n, half = 504, 0.044

    assert seen_unpaired(0.454, 0.454 + half, n) < 0.4
    assert seen_paired(half / 2, 0, n) > 0.9
    assert detectable_paired(n) < half / 2 < half < detectable_unpaired(0.454, n)


def test_too_few_images_show_no_difference():
    assert detectable_paired(5) is None
    assert detectable_unpaired(0.5, 5) is None
