"""The page of a comparison: the answer, the matrix, and names that stay names."""

import pandas as pd
import pytest
from robustkit.reports.comparison.page import page, write_comparison_page

from robustkit.comparison.compare import Comparison
from tests.reports.pages import HOSTILE, Page

RANKING = ["norm", "eps", "eps_text", "model", "n", "correct", "accuracy", "ci_low", "ci_high", "group"]
PAIRS = ["norm", "eps", "eps_text", "first", "second", "n", "both", "first_only", "second_only", "neither",
         "difference", "ci_low", "ci_high", "p", "p_holm", "verdict"]  # fmt: skip


def comparison(groups: str, verdict: str) -> Comparison:
    ranked = [("Linf", 0.1, "0.1", name, 100, k, k / 100, k / 100 - 0.1, k / 100 + 0.1, group)
              for name, k, group in zip(("upper", HOSTILE), (60, 20), groups, strict=True)]  # fmt: skip
    pair = ("Linf", 0.1, "0.1", "upper", HOSTILE, 100, 15, 45, 5, 35, 0.4, 0.29, 0.5, 1e-9, 3e-9, verdict)
    return Comparison(pd.DataFrame(ranked, columns=RANKING), pd.DataFrame([pair], columns=PAIRS), (HOSTILE,))


@pytest.fixture
def told_apart() -> Comparison:
    return comparison("ab", "first")


def test_the_matrix_has_each_difference_with_both_signs(told_apart):
    words = Page(page(told_apart)).words()

    assert "+40.0 +29.0 to +50.0" in words
    assert "\N{MINUS SIGN}40.0 \N{MINUS SIGN}50.0 to \N{MINUS SIGN}29.0" in words


def test_the_answer_says_whether_models_are_told_apart(told_apart):
    clear, unclear = (Page(page(each)).words() for each in (told_apart, comparison("aa", "no significant difference")))

    assert "upper is the highest at Linf 0.1: 60.0 %, 40.0 points (95 %: +29.0 to +50.0) above" in clear
    assert "No model differs significantly from upper, the highest at Linf 0.1 with 60.0 %." in unclear


def test_no_name_becomes_markup_and_the_bytes_are_the_same(told_apart, tmp_path):
    for name in ("one.html", "two.html"):
        write_comparison_page(told_apart, tmp_path / name)
    written = [(tmp_path / name).read_bytes() for name in ("one.html", "two.html")]
    found = Page(written[0].decode())

    found.check_safe()
    assert written[0] == written[1]
    assert found.data()["pairs"][0]["second"] == HOSTILE
