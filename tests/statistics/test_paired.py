"""Paired tests and intervals against published examples, statsmodels and simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as oracle_mcnemar
from statsmodels.stats.multitest import multipletests

from robustkit.statistics.paired import PairedCounts, holm, mcnemar, paired_counts, paired_difference

counts = st.builds(PairedCounts, *[st.integers(0, 60)] * 4)


def test_verdicts_are_counted_in_pairs():
    first, second = np.array([1, 1, 0, 0, 1], dtype=bool), np.array([1, 0, 1, 0, 0], dtype=bool)

    assert paired_counts(first, second) == (1, 2, 1, 1)


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [((1, 1, 7, 12), -0.507, -0.026), ((59, 6, 16, 80), -0.119, -0.005)],
    ids=["bentur 2009", "cavo 2012"],
)
def test_newcombes_interval_of_published_tables(table, low, high):
    # Fagerland, Lydersen & Laake 2014, Statistics in Medicine 33:2850, have both tables with this interval.
    found = paired_difference(PairedCounts(*table))

    assert (round(found.low, 3), round(found.high, 3)) == (low, high)


@given(counts)
def test_the_interval_holds_the_difference_and_turns_with_the_pair(table):
    found = paired_difference(table)
    turned = paired_difference(PairedCounts(table.both, table.second_only, table.first_only, table.neither))
    if table.n == 0:
        assert math.isnan(found.value)
        return

    assert -1 <= found.low <= found.value <= found.high <= 1
    assert (turned.value, turned.low, turned.high) == pytest.approx((-found.value, -found.high, -found.low))


@pytest.mark.parametrize("shares", [(0.4, 0.05, 0.1, 0.45), (0.8, 0.02, 0.02, 0.16), (0.25, 0.25, 0.25, 0.25)], ids=str)
def test_the_interval_covers_as_often_as_it_says(shares):
    draws = np.random.default_rng(0).multinomial(200, shares, size=2000)
    truth = shares[1] - shares[2]
    found = [paired_difference(PairedCounts(*map(int, draw))) for draw in draws]
    covered = np.mean([each.low <= truth <= each.high for each in found])

    # Three standard errors of 2,000 draws are 1.5 points.
    assert 0.935 <= covered <= 0.98


@given(counts)
def test_the_test_is_that_of_statsmodels(table):
    grid = [[table.both, table.first_only], [table.second_only, table.neither]]
    if table.first_only + table.second_only == 0:
        assert mcnemar(table) == 1
    else:
        assert mcnemar(table) == pytest.approx(oracle_mcnemar(grid, exact=True).pvalue)


def test_the_one_sided_test_sees_drops_alone():
    better, worse = PairedCounts(50, 10, 0, 40), PairedCounts(50, 0, 10, 40)

    assert mcnemar(worse, first_is_lower=True) == pytest.approx(2**-10)
    assert mcnemar(better, first_is_lower=True) == 1


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_the_correction_is_that_of_statsmodels(count):
    p_values = (np.random.default_rng(count).random(count) ** 3).round(2).tolist()  # some of them equal

    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


def test_no_test_needs_no_correction():
    assert holm([]) == []
