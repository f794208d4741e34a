"""Paired intervals against closed forms and simulations, and what a row says."""

import math

import numpy as np
import pytest
from robustkit.defenses.ablation_grid import axes_of, cells_of
from robustkit.defenses.ablation_table import Outcome, average, difference, runs_table, table

from robustkit.statistics import proportion

CELLS = cells_of(axes_of({"bn": ["batch", "frozen", "split"]}), "main-effects")


def outcome(seed: int, worst: object, status: str = "finished", ce: object = None) -> Outcome:
    right = np.asarray(worst, dtype=bool)
    everything = np.ones_like(right)
    seen = everything if ce is None else np.asarray(ce, dtype=bool)
    return Outcome(seed, status, "", everything, seen, right, 3, 0.5, 1.0, 2.0, 4.0, 9.0)


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


def test_pairing_makes_the_interval_as_short_as_the_verdicts_agree():
    other = (np.arange(1000) % 2 == 0)[None]
    mine = other.copy()
    mine[0, :20] = True

    found = difference(mine, other)

    assert found.value == pytest.approx(0.01)
    unpaired = 1.96 * math.sqrt(2 * 0.25 / 1000)
    assert found.high - found.low < unpaired / 2
    assert found.low > 0


def test_an_interval_covers_the_truth_about_as_often_as_it_says():
    source = np.random.default_rng(2)
    covered = 0
    for _ in range(150):
        # Images and seeds differ, and the cell breaks 10 % more of what the baseline withstands.
        hard, luck = source.normal(size=(1, 300)), 0.2 * source.normal(size=(8, 1))
        other = hard + luck + 0.3 * source.normal(size=(8, 300)) > 0
        mine = other & (source.random((8, 300)) < 0.9)
        found = difference(mine, other)
        covered += found.low <= -0.05 <= found.high

    assert 0.88 <= covered / 150 <= 1.0


def test_seeds_that_disagree_widen_the_interval():
    image = np.arange(400) % 4 == 0
    none, all_of_them = np.zeros(400, dtype=bool), image
    agreeing = difference(np.stack([image] * 3), np.stack([none] * 3))
    disagreeing = difference(np.stack([all_of_them, none, ~none]), np.stack([none] * 3))

    assert disagreeing.high - disagreeing.low > 3 * (agreeing.high - agreeing.low)


def test_no_difference_seen_is_not_none_at_all():
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


def test_a_row_compares_the_seeds_that_both_have():
    outcomes = {
        CELLS[0]: [outcome(0, [1, 1, 0, 0]), outcome(1, [1, 0, 0, 0])],
        CELLS[1]: [outcome(1, [1, 1, 1, 0])],
        CELLS[2]: [],
    }

    frame = table(outcomes, planned=2)

    assert list(frame.cell) == ["baseline", "bn=frozen"]
    assert frame.worst.tolist() == [0.375, 0.75]
    assert math.isnan(frame.worst_change[0])
    assert frame.worst_change[1] == 0.5
    assert frame.seeds.tolist() == [2, 1]


def test_cells_that_collapsed_or_diverged_stay_in_the_table():
    nothing = np.zeros(0, dtype=bool)
    lost = Outcome(1, "diverged", "The loss became nan.", nothing, nothing, nothing, 0, 0.5, 1.0, 2.0, 4.0, 1.0)
    outcomes = {
        CELLS[0]: [outcome(0, [1, 1, 0, 0]), outcome(1, [1, 1, 0, 0])],
        CELLS[1]: [outcome(0, [0, 0, 0, 1], "collapsed"), lost],
        CELLS[2]: [lost],
    }

    frame = table(outcomes, planned=2)

    assert frame.status.tolist() == ["finished", "1 collapsed, 1 diverged", "diverged"]
    assert frame.worst.iloc[1] == 0.25
    assert math.isnan(frame.worst.iloc[2])
    assert runs_table(outcomes).note.tolist()[-1] == "The loss became nan."


def test_a_gap_above_five_points_is_flagged():
    ce, worst = np.arange(100) < 50, np.arange(100) < 44
    outcomes = {CELLS[0]: [outcome(0, worst, ce=ce)], CELLS[1]: [outcome(0, np.arange(100) < 46, ce=ce)]}

    frame = table(outcomes, planned=1)

    assert frame.gap.tolist() == pytest.approx([0.06, 0.04])
    assert frame.masked.tolist() == [True, False]
