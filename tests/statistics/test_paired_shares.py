"""The test of two shares against enumeration, and against McNemar's where each image has one version."""

import itertools
import math

import numpy as np
import pytest

from robustkit.statistics.paired import mcnemar, paired_counts, paired_difference
from robustkit.statistics.paired_shares import share_test


@pytest.mark.parametrize("seed", range(4))
def test_the_probability_is_that_of_all_changes_of_places(seed):
    first, second = np.random.default_rng(seed).integers(0, 6, (2, 9))
    delta = first - second
    sums = [sum(signs * delta) for signs in itertools.product((-1, 1), repeat=len(delta))]
    two = np.mean([abs(each) >= abs(delta.sum()) for each in sums])
    one = np.mean([each <= delta.sum() for each in sums]) if delta.sum() < 0 else 1.0

    assert share_test(first, second, 5).p == pytest.approx(two, abs=1e-12)
    assert share_test(first, second, 5, first_is_lower=True).p == pytest.approx(one, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_with_one_version_it_is_mcnemar(seed):
    first, second = np.random.default_rng(seed).random((2, 200)) < [[0.7], [0.6]]
    counts = paired_counts(first, second)
    found = share_test(first.astype(int), second.astype(int), 1)
    newcombe = paired_difference(counts)

    assert found.p == pytest.approx(mcnemar(counts), abs=1e-12)
    assert found.difference == pytest.approx(newcombe.value)
    assert (found.low, found.high) == pytest.approx((newcombe.low, newcombe.high), abs=0.02)
    assert (found.first_better, found.second_better) == (counts.first_only, counts.second_only)


def test_the_interval_is_that_of_bonett_and_price():
    # Their formula for 5 and 12 images that one classifier alone gets right, of 50.
    first, second = np.array([1] * 5 + [0] * 12 + [1] * 33), np.array([0] * 5 + [1] * 12 + [1] * 33)
    one, other = 6 / 52, 13 / 52
    reach = 1.959963984540054 * math.sqrt((one + other - (one - other) ** 2) / 52)

    found = share_test(first, second, 1)
    assert (found.low, found.high) == pytest.approx((one - other - reach, one - other + reach))


def test_equal_classifiers_have_an_interval_that_is_not_empty():
    same = np.full(30, 4)
    found = share_test(same, same, 5)

    assert found.p == 1
    assert found.low < found.difference == 0 < found.high


def test_it_covers_the_difference_of_correlated_shares():
    draws, inside = np.random.default_rng(0), 0
    for _ in range(400):
        ease = draws.beta(2, 1, 80)
        first, second = draws.binomial(10, ease), draws.binomial(10, 0.9 * ease)
        found = share_test(first, second, 10)
        inside += found.low <= 0.1 * 2 / 3 <= found.high

    assert inside >= 0.93 * 400  # three standard deviations below 95 % are 91.7 %


def test_a_p_value_was_zero():
    """Rounding ended at 0, and below it a gate printed p = 0."""
    first, second = np.zeros(200, int), np.full(200, 75)

    for p in (share_test(second, first, 75).p, share_test(first, second, 75, first_is_lower=True).p):
        assert p == 1e-15
