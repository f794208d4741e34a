"""Intervals of an ablation against closed forms and simulations."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from robustkit.statistics.crossed_effects import average, difference
from robustkit.statistics.intervals import proportion


def test_with_one_seed_the_interval_is_that_of_paired_proportions():
    source = np.random.default_rng(1)
    images = 2000
    other = source.random((1, images)) < 0.4
    mine = np.where(source.random((1, images)) < 0.2, ~other, other)

    found = difference(mine, other)

    gained, lost = (mine & ~other).sum(), (~mine & other).sum()
    value = (gained - lost) / images
    # The standard error of a difference of paired proportions.
    error = math.sqrt(gained + lost - (gained - lost) ** 2 / images) / images
    assert found.value == pytest.approx(value)
    assert found.low == pytest.approx(value - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(value + 1.96 * error, abs=0.1 * error)


def test_pairing_shortens_the_interval_where_verdicts_agree():
    other = (np.arange(1000) % 2 == 0)[None]
    mine = other.copy()
    mine[0, :20] = True

    found = difference(mine, other)

    assert found.value == pytest.approx(0.01)
    unpaired = 1.96 * math.sqrt(2 * 0.25 / 1000)
    assert found.high - found.low < unpaired / 2
    assert found.low > 0


def scattered(source: np.random.Generator, seeds: int, luck: float, loss: float) -> tuple[np.ndarray, np.ndarray]:
    """Verdicts on 504 images of a baseline whose seeds agree, and of a cell whose seeds scatter by `luck`."""
    hard, other = source.normal(size=504) * 1.5, 0.7 * source.normal(size=(2, seeds, 504))
    return hard + luck * source.normal(size=(seeds, 1)) - loss + other[0] > 0, hard + other[1] > 0


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("luck", [0.0, 0.05, 0.2, 0.6])
def test_an_interval_covers_the_truth_as_often_as_it_says_however_seeds_scatter(seeds, luck):
    source = np.random.default_rng(2)
    # The normal latent variable's share above zero, for the sum of all that scatters it.
    truth = NormalDist().cdf(-0.3 / math.sqrt(1.5**2 + 0.7**2 + luck**2)) - 0.5
    found = [difference(*scattered(source, seeds, luck, 0.3)) for _ in range(400)]

    assert 0.92 <= np.mean([one.low <= truth <= one.high for one in found]) <= 0.995


def test_an_average_near_zero_covers_the_truth_as_often_as_it_says():
    source = np.random.default_rng(2)
    truth = NormalDist().cdf(-3 / math.sqrt(1.5**2 + 0.7**2 + 0.2**2))
    found = [average(scattered(source, 3, 0.2, 3.0)[0]) for _ in range(400)]

    assert 0.92 <= np.mean([one.low <= truth <= one.high for one in found]) <= 0.995
    assert all(0 < one.low < one.value < one.high for one in found)


def test_an_effect_common_to_all_images_has_the_interval_of_its_seeds():
    mine = np.arange(300) % 10 < np.array([3, 5, 7])[:, None]
    found = difference(mine, np.zeros_like(mine))

    # Seeds of 30, 50 and 70 %, each exactly: Student's interval of three numbers, cut at what a share can be.
    half = 4.303 * 0.2 / math.sqrt(3)
    assert found == (pytest.approx(0.5), pytest.approx(0.5 - half, abs=0.03), pytest.approx(0.5 + half, abs=0.03))


def test_seeds_that_disagree_widen_the_interval():
    image = np.arange(400) % 4 == 0
    none, all_of_them = np.zeros(400, dtype=bool), image
    agreeing = difference(np.stack([image] * 3), np.stack([none] * 3))
    disagreeing = difference(np.stack([all_of_them, none, ~none]), np.stack([none] * 3))

    assert disagreeing.high - disagreeing.low > 3 * (agreeing.high - agreeing.low)


def test_equal_verdicts_still_have_an_interval_around_no_difference():
    same = np.ones((3, 100), dtype=bool)

    found = difference(same, same)

    # None in 100: a share of p would go unseen with chance (1 - p)^100, 5 % at p = 2.95 %.
    assert found == (0.0, pytest.approx(-0.0295, abs=1e-4), pytest.approx(0.0295, abs=1e-4))


def test_the_average_of_one_seed_has_the_interval_of_an_evaluation():
    right = (np.arange(50) < 20)[None]

    assert average(right) == pytest.approx(proportion(20, 50)[:3])


def test_the_order_of_images_does_not_matter():
    source = np.random.default_rng(3)
    mine, other = source.random((2, 3, 200)) < 0.5
    order = source.permutation(200)

    assert difference(mine, other) == difference(mine[:, order], other[:, order])


def test_seeds_that_contradict_each_other_on_every_image_had_no_interval():
    """Equal means over seeds and over images left no variance: NaN for a change, and a division by zero."""
    one, other = np.array([[1, 0, 1, 1], [0, 1, 1, 1]], bool), np.array([[0, 1, 1, 1], [1, 0, 1, 1]], bool)
    change, mean = difference(one, other), average(one[:, :2])

    assert change.low < change.value == 0 < change.high
    assert 0 < mean.low < mean.value == 0.5 < mean.high < 1
