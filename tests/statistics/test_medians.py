import math

import numpy as np
import pytest

from robustkit.statistics.medians import median


@pytest.mark.parametrize(("n", "rank"), [(5, None), (6, 1), (10, 2), (20, 6), (50, 18), (100, 40)])
def test_the_interval_ends_at_the_ranks_of_the_sign_test(n, rank):
    # Ranks of the 95 % interval in Conover's and in every other table of the sign test.
    value, low, high = median(list(range(1, n + 1)))

    assert value == (n + 1) / 2
    assert (low, high) == ((0.0, math.inf) if rank is None else (rank, n + 1 - rank))


def test_in_95_of_100_samples_the_interval_holds_the_true_median():
    source = np.random.default_rng(0)
    held = [
        low <= math.log(2) <= high
        for _, low, high in (median(source.exponential(size=41).tolist()) for _ in range(2000))
    ]

    assert 0.945 < np.mean(held) < 0.985  # the exact level for 41 values is 0.9725


def test_unknown_values_are_larger_than_all_others():
    assert median([1.0, 2.0, math.inf]).value == 2.0
    assert median([1.0, math.inf, math.inf]).value == math.inf
    assert median([1.0, 2.0, math.inf, math.inf]).value == math.inf
    assert math.isnan(median([]).value)
