"""A confidence sequence covers at all numbers of images at once, also at the one where somebody stops."""

import math

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import betabinom

from robustkit.statistics.confidence_sequence import ALPHA, half_width, images_needed, sequence

CASES = [(0, 30, 200), (7, 30, 200), (30, 30, 200), (100, 150, 151), (3, 500, 10_000)]


@pytest.mark.parametrize(("k", "n", "population"), CASES)
def test_the_interval_holds_the_numbers_whose_prior_is_below_twenty_posteriors(k, n, population):
    right = np.arange(population + 1)
    prior = 1 / (population + 1)
    posterior = betabinom(population - n, k + 1, n - k + 1).pmf(right - k)
    inside = right[prior < posterior / ALPHA]

    share = sequence(k, n, population)

    assert (share.low, share.high) == pytest.approx((inside.min() / population, inside.max() / population), abs=1e-12)


def test_nothing_is_unknown_once_all_images_are_seen():
    assert sequence(37, 200, 200)[:3] == (0.185, 0.185, 0.185)
    assert math.isnan(sequence(0, 0, 200).low)


@pytest.mark.parametrize("right", [0, 12, 150])
def test_no_number_of_images_is_wrong_more_often_than_allowed(right):
    population, runs = 300, 1000
    rng, n = np.random.default_rng(0), np.arange(1, 301)
    images = np.arange(population) < right
    k = np.stack([rng.permutation(images).cumsum() for _ in range(runs)])
    average = gammaln(k + 1) + gammaln(n - k + 1) - gammaln(n + 2)
    own = gammaln(right + 1) - gammaln(right - k + 1) - gammaln(population + 1) + gammaln(population - n + 1)
    own += gammaln(population - right + 1) - gammaln(population - right - n + k + 1)
    ever_missed = (average - own >= math.log(1 / ALPHA)).any(axis=1).mean()

    # 5 % and three standard deviations of 1000 runs.
    assert ever_missed <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_stopping_at_a_narrow_interval_keeps_the_coverage():
    population, right, runs = 400, 180, 400
    rng, missed = np.random.default_rng(1), 0
    for _ in range(runs):
        k, n = rng.permutation(np.arange(population) < right).cumsum(), images_needed(0.0, 0.06, population)
        while half_width(sequence(int(k[n - 1]), n, population)) > 0.06:
            n = images_needed(k[n - 1] / n, 0.06, population, seen=n)
        share = sequence(int(k[n - 1]), n, population)
        missed += not share.low <= right / population <= share.high

    assert missed / runs <= ALPHA


def test_so_many_images_are_needed_and_not_fewer():
    n = images_needed(0.5, 0.05, 10_000)

    assert half_width(sequence(n // 2, n, 10_000)) <= 0.05 < half_width(sequence(n // 2, n - 2, 10_000))
