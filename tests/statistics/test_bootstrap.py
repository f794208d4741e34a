"""The BCa interval of a mean: that of scipy, the same bytes every time, with the coverage it promises."""

import numpy as np
import pytest
from scipy import stats

from robustkit.statistics.bootstrap import _rows, mean_bca, resampled_means


@pytest.mark.parametrize("n", [20, 200])
def test_the_interval_is_that_of_scipy(n):
    values = np.random.default_rng(n).exponential(size=n)
    theirs = stats.bootstrap((values,), np.mean, method="BCa", rng=np.random.default_rng(0)).confidence_interval
    ours = mean_bca(values)

    # Two sets of 9,999 resamples differ by about 1 % of the interval's length at each end.
    assert [ours.low, ours.high] == pytest.approx([theirs.low, theirs.high], abs=0.03 * (ours.high - ours.low))


def test_with_the_same_resamples_it_is_scipys_to_the_last_digits():
    values = np.random.default_rng(3).beta(0.3, 1, size=40)

    class Generator(np.random.Generator):
        def __init__(self):
            super().__init__(np.random.PCG64(0))

        def integers(self, low, high=None, size=None, **_):
            return _rows(range(size[0]), size[1])

    theirs = stats.bootstrap((values,), np.mean, method="BCa", n_resamples=999, rng=Generator()).confidence_interval
    ours = mean_bca(values, resamples=999)

    assert [ours.low, ours.high] == pytest.approx([theirs.low, theirs.high], abs=1e-12)


def test_every_row_is_drawn_equally_often():
    drawn = np.bincount(_rows(range(2000), 50).ravel(), minlength=50)

    assert stats.chisquare(drawn).pvalue > 0.001


def test_memory_and_order_do_not_change_a_bit():
    values = np.linspace(0, 1, 30) ** 3

    assert (
        resampled_means(values, 50)
        == np.concatenate([values[_rows(range(k, k + 1), 30)].mean(axis=1) for k in range(50)])
    ).all()


def test_skewed_values_are_covered():
    rng, covered = np.random.default_rng(5), 0
    for _ in range(300):
        share = mean_bca(np.minimum(rng.exponential(size=60), 1.5) / 1.5, resamples=999)
        covered += share.low <= (1 - np.exp(-1.5)) / 1.5 <= share.high

    # 95 % less three standard deviations of 300 runs.
    assert covered / 300 >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 300)


def test_equal_values_and_no_values():
    assert mean_bca(np.full(9, 0.25)) == (0.25, 0.25, 0.25)
    assert np.isnan(mean_bca(np.array([])).value)
    with pytest.raises(ValueError, match="finite"):
        mean_bca(np.array([1.0, np.inf]))
