import math

import numpy as np
import pytest
from scipy import stats

from robustkit.statistics.intervals import proportion, upper_bound


def test_the_interval_of_a_textbook():
    # Wilson's interval for 81 of 263: Newcombe 1998, Statistics in Medicine 17, table I.
    found = proportion(81, 263)

    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    assert found.value == 81 / 263


@pytest.mark.parametrize(("k", "n"), [(1, 1), (0, 7), (7, 7), (1, 40), (37, 50), (81, 263), (9999, 10000)])
def test_scipy_has_the_same_intervals(k, n):
    found = proportion(k, n)
    scipys = stats.binomtest(k, n).proportion_ci(method="wilson" if found.method == "wilson" else "exact")

    assert (found.method == "wilson") == (0 < k < n)
    assert found[1:3] == (pytest.approx(scipys.low, abs=1e-12), pytest.approx(scipys.high, abs=1e-12))


def test_no_success_has_the_exact_upper_bound():
    assert proportion(0, 300)[:3] == (0, 0, pytest.approx(1 - 0.025 ** (1 / 300)))
    assert proportion(0, 300).method == "clopper-pearson"


def test_nothing_but_successes_has_the_exact_lower_bound():
    assert proportion(300, 300)[:3] == (1, pytest.approx(0.025 ** (1 / 300)), 1)


def test_no_image_gives_no_number():
    assert all(math.isnan(value) for value in proportion(0, 0)[:3])
    assert proportion(0, 0).method == "none"


def test_the_one_sided_bound_is_its_formula():
    for k, n in [(0, 1), (0, 7), (3, 40), (39, 40), (17, 1000)]:
        assert upper_bound(k, n) == pytest.approx(stats.beta.ppf(0.95, k + 1, n - k))
        # With a larger share, k or fewer would have a chance below 5 %.
        assert stats.binom.cdf(k, n, upper_bound(k, n)) == pytest.approx(0.05)


def test_the_one_sided_bound_of_no_miss_follows_the_rule_of_three():
    assert upper_bound(0, 100) == pytest.approx(0.0295, abs=5e-5)
    assert upper_bound(0, 300) == pytest.approx(0.00994, abs=5e-6)
    assert upper_bound(5, 5) == 1
    assert math.isnan(upper_bound(0, 0))


@pytest.mark.parametrize("bound", [proportion, upper_bound])
@pytest.mark.parametrize(("k", "n"), [(-1, 5), (6, 5), (1, 0), (0, -1)])
def test_impossible_counts_are_refused(k, n, bound):
    with pytest.raises(ValueError, match="0 <= k <= n"):
        bound(k, n)


def test_the_interval_holds_the_truth_as_often_as_it_says():
    n, truths = 30, np.linspace(0.01, 0.99, 197)
    intervals = [proportion(k, n) for k in range(n + 1)]
    inside = np.array([[each.low <= truth <= each.high for each in intervals] for truth in truths])
    coverage = (inside * stats.binom.pmf(np.arange(n + 1), n, truths[:, None])).sum(1)

    assert coverage.mean() > 0.945
    assert coverage.min() > 0.85
