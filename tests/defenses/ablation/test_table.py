"""The rows of an ablation's table."""

import math

import numpy as np
import pytest
from robustkit.defenses.ablation.grid import axes_of, cells_of
from robustkit.defenses.ablation.table import TrainingOutcome, runs_table, table

CELLS = cells_of(axes_of({"bn": ["batch", "frozen", "split"]}), "main-effects")


def outcome(seed: int, worst: object, status: str = "finished", ce: object = None) -> TrainingOutcome:
    survived = np.asarray(worst, dtype=bool)
    clean = np.ones_like(survived)
    ce = clean if ce is None else np.asarray(ce, dtype=bool)
    return TrainingOutcome(seed, status, "", clean, ce, survived, 3, 0.5, 1.0, 2.0, 4.0, 9.0)


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
    empty = np.zeros(0, dtype=bool)
    diverged = TrainingOutcome(1, "diverged", "The loss became nan.", empty, empty, empty, 0, 0.5, 1.0, 2.0, 4.0, 1.0)
    outcomes = {
        CELLS[0]: [outcome(0, [1, 1, 0, 0]), outcome(1, [1, 1, 0, 0])],
        CELLS[1]: [outcome(0, [0, 0, 0, 1], "collapsed"), diverged],
        CELLS[2]: [diverged],
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
