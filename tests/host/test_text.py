import csv

import pandas as pd
import pytest
from robustkit.reports.shared.csv import write_frame

from robustkit.host.text import LONGEST, as_name, csv_cell, encodable, one_line, printable


@pytest.mark.parametrize("text", ["=1+1", "+SUM(A1)", "-2+3", "@x", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text):
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-0.5", "+1e-3", "-", "Linf", "8/255", "", -0.5, -3, None, "a=b"])
def test_numbers_and_harmless_texts_stay_as_they_are(value):
    assert csv_cell(value) is value


def test_a_csv_file_holds_no_formula_and_equal_numbers(tmp_path):
    frame = pd.DataFrame({"layer": ["=1+1", "conv"], "@x": [-1.5, float("nan")], "n": [-3, 4], "mixed": ["-a", 2]})

    write_frame(tmp_path / "a.csv", frame)

    with (tmp_path / "a.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [["layer", "'@x", "n", "mixed"], ["'=1+1", "-1.5", "-3", "'-a"], ["conv", "", "4", "2"]]
    assert frame["layer"].tolist() == ["=1+1", "conv"]


@pytest.mark.parametrize("text", ["\x1b[31m", "\x07", "\x9b2J", "\u202e", "\u2066", "\u200b", "\u2028", "\udcff", "\r"])
def test_nothing_that_steers_a_terminal_is_printed(text):
    assert printable(f"a{text}b").isprintable()


@pytest.mark.parametrize("blank", ["\u00a0", "\u2009", "\u3000", "\n", "  "])
def test_names_that_look_the_same_are_one(blank):
    assert as_name(f" net{blank}A") == "net A"


def test_an_error_is_one_line_however_long_its_text_is():
    line = one_line("first\n second\x1b " + "x" * 100_000 + " last")

    assert len(line) < LONGEST + 10
    assert line.startswith("first second")
    assert line.endswith("last")


def test_bytes_of_a_file_name_that_are_no_utf8_can_be_stored():
    assert encodable("caf\udce9") == "caf\\udce9"
