"""Frames are written as CSV as pandas writes them, whatever their texts hold."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robustkit.reports.shared.csv import csv_text, numbers

from robustkit.host.text import csv_cell

TEXTS = st.text(st.sampled_from("ab,\"'\n\r\t ;é0"), max_size=6).map(csv_cell)
COLUMNS = {
    "texts": st.one_of(TEXTS, st.just(math.nan)),
    "floats": st.floats(),
    "whole": st.integers(-(2**53), 2**53),
    "some": st.one_of(st.none(), st.integers(-5, 10**9)),
    "flags": st.booleans(),
}


@settings(max_examples=40)
@given(data=st.data(), rows=st.integers(0, 5), names=st.lists(st.sampled_from([*COLUMNS]), min_size=1, unique=True))
def test_the_text_is_that_of_pandas(data, rows, names):
    drawn = {name: data.draw(st.lists(COLUMNS[name], min_size=rows, max_size=rows)) for name in names}
    frame = pd.DataFrame(drawn, columns=names).astype({"some": "Int64"} if "some" in names else {})

    assert csv_text(frame) == frame.to_csv(index=False, lineterminator="\n")


def test_a_negative_zero_beside_a_zero_keeps_its_sign():
    assert numbers(np.array([0.0, -0.0, 1.0])) == ["0.0", "-0.0", "1.0"]


@pytest.mark.parametrize("kind", ["bits", "sizes", "distances", "around the exponents"])
def test_many_floats_are_the_shortest_texts_that_read_back_as_they_are(kind):
    source = np.random.default_rng(0)
    values = {
        "bits": source.integers(0, 2**64, 40_000, np.uint64).view(np.float64),
        "sizes": 10 ** source.uniform(-8, 20, 40_000) * source.choice([-1, 1], 40_000),
        "distances": np.concatenate(
            [source.uniform(0, 90, 40_000), np.float32(source.uniform(0, 2, 999)), [0, -0.0, 1]]
        ),
        "around the exponents": np.concatenate(
            [np.nextafter(each, [0, each, math.inf]) for each in (1e-4, 1e15, 1e16)] * 90
        ),
    }[kind]

    assert numbers(values) == ["" if math.isnan(value) else repr(value) for value in values.tolist()]


@pytest.mark.parametrize("columns", [["only"], ["only", "other"]])
def test_an_unknown_value_is_read_back_as_one(columns, tmp_path):
    frame = pd.DataFrame(math.nan, index=range(3), columns=columns)
    (tmp_path / "a.csv").write_text(csv_text(frame))

    assert pd.read_csv(tmp_path / "a.csv").equals(frame)
