"""Frames are written as CSV as pandas writes them, whatever their texts hold."""

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from robustkit.reports.shared.csv import csv_text

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


@pytest.mark.parametrize("columns", [["only"], ["only", "other"]])
def test_an_unknown_value_is_read_back_as_one(columns, tmp_path):
    frame = pd.DataFrame(math.nan, index=range(3), columns=columns)
    (tmp_path / "a.csv").write_text(csv_text(frame))

    assert pd.read_csv(tmp_path / "a.csv").equals(frame)
