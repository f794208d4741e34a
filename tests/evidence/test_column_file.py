"""Columns that are moved into a file keep their values, wherever they stand in it and whether it can be written."""

import tempfile

import numpy as np
import pytest

from robustkit.evidence.column_file import ColumnFile
from robustkit.evidence.parts import Gaps


def parts(count=50):
    rng = np.random.default_rng(0)
    known = rng.random(count) < 0.7
    l2, target = rng.random(int(known.sum())), np.arange(int(known.sum()), dtype=np.int8)
    return [{"attack": name, "l2": Gaps(l2, known), "target": Gaps(target, known)} for name in ("fgsm", "pgd")]


def values(moved):  # NaN where missing
    return [part[name].filled().tolist() for part in moved for name in ("l2", "target")]


@pytest.fixture
def small_maps(monkeypatch):
    monkeypatch.setattr("robustkit.evidence.column_file._SEGMENT", 1)


def test_moved_columns_have_the_same_values_after_their_memory_was_given_back(small_maps):
    file = ColumnFile(in_memory=0)
    moved = [file.moved(parts(count)) for count in (50, 5000, 3)]
    file.release()

    for count, own in zip((50, 5000, 3), moved, strict=True):
        assert np.array_equal(values(own), values(parts(count)), equal_nan=True)
    assert not moved[0][0]["l2"].values.flags.owndata


def test_a_column_that_two_parts_share_is_written_once():
    first, second = ColumnFile(in_memory=0).moved(parts())

    assert first["l2"].values is second["l2"].values


def test_without_room_for_a_file_columns_stay_in_memory(monkeypatch):
    def full(**_):
        raise OSError("No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)

    assert np.array_equal(values(ColumnFile(in_memory=0).moved(parts())), values(parts()), equal_nan=True)
