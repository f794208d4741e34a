"""The summary and the notes in terminals of any width."""

import io
import re

import pytest
from rich.console import Console
from robustkit.reports import print_table, table_text

from robustkit import evaluate
from tests.small import data, linear

WIDTHS = (40, 60, 80, 120)


@pytest.fixture(scope="module")
def run():
    settings = {
        "dataset": data(40),
        "attacks": "fgsm",
        "norm": ["Linf", "L2"],
        "eps": ["Linf:0.05", "Linf:0.1", "L2:0.3"],
    }
    return evaluate([linear(), linear()], names=["a-network-with-a-long-name", "b"], **settings)


def printed(run, width):
    console = Console(file=io.StringIO(), width=width, record=True, force_terminal=True)
    print_table(run, console)
    return console.export_text()


@pytest.mark.parametrize("width", WIDTHS)
def test_every_accuracy_of_the_summary_has_its_interval_in_any_width(run, width):
    text = printed(run, width)
    summary = text[text.index("Summary") : text.index("worst-case: an upper")]
    rows = run.results[run.results["role"].isin(["clean", "worst-case", "union"])]
    cells = [f"{100 * row.accuracy:.1f} ({100 * row.ci_low:.1f}-{100 * row.ci_high:.1f})" for row in rows.itertuples()]

    assert max(map(len, text.splitlines())) <= width
    assert sorted(re.findall(r"\d+\.\d \([\d.]+-[\d.]+\)", summary)) == sorted(cells)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_column_that_is_left_out_takes_its_note_along(run, width):
    text = printed(run, width)

    assert ("passes/image: forwards" in text) == (width == 120) == bool(re.search(r"passes/image *\n", text))


def test_one_radius_of_one_model_needs_no_summary():
    run = evaluate(linear(), dataset=data(20), attacks="fgsm", eps="0.1")

    assert "Summary" not in printed(run, 80)


def test_a_large_run_prints_only_its_summary_in_python():
    names = [f"net{number}" for number in range(8)]
    radii = ["0.01", "0.02", "0.05", "0.1"]
    run = evaluate([linear() for _ in names], names=names, dataset=data(4), attacks="fgsm", eps=radii, checks="none")

    assert len(run.results) > 60
    assert len(table_text(run).splitlines()) < 30
