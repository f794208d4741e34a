import re

import pandas as pd
import pytest
from robustkit.reports.evaluation.board import boards
from robustkit.reports.evaluation.html import page
from robustkit.reports.evaluation.queries import query_table
from robustkit.reports.evaluation.query_figures import by_queries

from robustkit import evaluate
from robustkit.evidence.sample_rows import SampleRows
from tests.reports.pages import Page
from tests.small import cnn, data


@pytest.fixture(scope="module")
def run():
    return evaluate(cnn(), dataset=data(24), attacks=["rays:queries=40"], eps=["Linf:0.1", "Linf:minimum"],
                    samples=None)  # fmt: skip


def test_the_table_ends_with_the_results_of_the_run(run):
    table = query_table(boards([run])[0])
    results = run.results[run.results.attack == "rays:queries=40"].set_index("eps_text")

    assert table.marks[-1] == 50
    assert [block.title for block in table.blocks] == ["Linf 0.1", "Linf distance"]
    assert table.blocks[0].rows[0].cells[-1].value == f"{100 * results.success_rate['0.1']:.1f} %"
    assert table.blocks[1].rows[0].cells[-1].value == f"{results.median_distance['minimum']:.3g}"


def test_each_threat_has_a_figure_with_its_attacks(run):
    figures = by_queries(boards([run])[0], "s0")

    assert [[line.name for line in one.legend] for one in figures] == [["rays:queries=40"]] * 2
    assert "median distance" in figures[1].figure.text
    assert not re.search(r"#[0-9a-f]{6}\b", figures[0].figure.svg)


def test_the_page_stays_small_and_safe(run):
    text = page([run])
    Page(text).check_safe()

    assert "against queries" in text
    assert len(text) < 200_000


def test_eight_attacks_take_two_figures(run):
    frames = [run.samples.assign(attack=f"rays-{number}") for number in range(8)]
    board = boards([run])[0]
    many = type(board)(**{**vars(board), "samples": SampleRows.of_frame(pd.concat(frames))})

    assert [len(one.legend) for one in by_queries(many, "s0")] == [7, 1, 7, 1]
