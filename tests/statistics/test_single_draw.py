import math

import numpy as np
import pytest

from robustkit.statistics.intervals import mean_of_shares, proportion
from robustkit.statistics.single_draw import FreshDraws, single_draw

DRAWS = 16


def coverage(right: np.ndarray, truth: float) -> float:
    """How often the interval holds the truth, for `[simulations, images]` chances that a draw is right."""
    totals = np.random.default_rng(1).binomial(DRAWS, right).sum(1)
    intervals = {total: mean_of_shares(total / DRAWS, right.shape[1]) for total in set(totals.tolist())}
    return float(np.mean([intervals[total].low <= truth <= intervals[total].high for total in totals.tolist()]))


@pytest.mark.parametrize("images", [1, 5, 20, 100])
@pytest.mark.parametrize("right", [0.003, 0.05, 0.55, 0.9, 0.997])
def test_the_interval_covers_draws_and_images(right, images):
    alike = np.full((1000, images), right)
    either = (np.random.default_rng(0).random((1000, images)) < right).astype(float)

    assert coverage(alike, right) >= 0.93
    assert coverage(either, right) >= 0.93


@pytest.mark.parametrize("images", [5, 30])
def test_the_interval_covers_where_a_few_images_differ_from_the_others(images):
    seldom = np.random.default_rng(0).random((1000, images)) < 0.03

    assert coverage(np.where(seldom, 0.0, 0.99), 0.97 * 0.99) >= 0.93
    assert coverage(np.where(seldom, 0.5, 1.0), 0.97 + 0.015) >= 0.93


def test_whole_totals_have_the_interval_of_clopper_and_pearson():
    assert mean_of_shares(10, 10)[:3] == pytest.approx(proportion(10, 10)[:3])
    assert mean_of_shares(0, 10)[:3] == pytest.approx(proportion(0, 10)[:3])
    assert mean_of_shares(2.5, 10).low < 0.25 < mean_of_shares(2.5, 10).high


def test_no_images_have_no_mean():
    assert math.isnan(mean_of_shares(0, 0).value)
    with pytest.raises(ValueError, match="total"):
        mean_of_shares(3, 2)


def test_the_worst_point_is_chosen_by_draws_that_are_not_reported():
    points = [FreshDraws(16, 9, 3), FreshDraws(16, 8, 12), FreshDraws(16, 8, 1)]

    assert single_draw([points]).value == 12 / 16


def test_the_smallest_of_many_alike_is_not_too_small():
    random = np.random.default_rng(0)
    images = [[FreshDraws(16, *random.binomial(16, 0.55, 2).tolist()) for _ in range(10)] for _ in range(500)]

    # The smallest first half is 0.35 on average; the second half of the same points is 0.55 +- 0.0056.
    assert abs(single_draw(images).value - 0.55) < 4 * 0.0056
