"""The sign test of paired distances, also where distances are unknown."""

import math

import numpy as np
import pytest
from scipy.stats import quantile_test
from statsmodels.stats.descriptivestats import sign_test as theirs

from robustkit.statistics.paired_distances import sign_test


@pytest.mark.parametrize("n", [7, 40, 101])
def test_the_p_value_is_that_of_statsmodels_and_the_interval_that_of_scipy(n):
    rng = np.random.default_rng(n)
    first, second = rng.exponential(size=n), rng.exponential(0.7, size=n)
    ours, oracle = sign_test(first, second), quantile_test(first - second, q=0, p=0.5)
    interval = oracle.confidence_interval(0.95)

    assert ours.p == pytest.approx(theirs(first - second)[1])
    assert ours.difference == pytest.approx(np.median(first - second))
    assert (ours.low, ours.high) == pytest.approx((interval.low, interval.high))


def test_an_image_without_a_known_error_is_farther_than_any():
    first, second = np.array([math.inf] * 8), np.arange(8.0)
    found = sign_test(first, second)

    assert (found.first_farther, found.second_farther, found.difference) == (8, 0, math.inf)
    assert found.p == pytest.approx(2 / 2**8)


def test_two_unknown_distances_widen_the_interval_to_both_sides():
    first = np.concatenate([np.arange(10.0) + 1, np.full(10, math.inf)])
    second = np.concatenate([np.arange(10.0), np.full(10, math.inf)])
    found = sign_test(first, second)

    assert (found.low, found.high) == (-math.inf, math.inf)
    assert math.isnan(found.difference)
    assert (found.first_farther, found.second_farther) == (10, 0)


def test_equal_models_are_told_apart_as_often_as_the_level_says():
    rng = np.random.default_rng(2)
    tests = [sign_test(*rng.exponential(size=(2, 60))) for _ in range(1000)]

    assert np.mean([test.p < 0.05 for test in tests]) <= 0.05
    assert np.mean([test.low <= 0 <= test.high for test in tests]) >= 0.95
