"""The lower bound of smoothed classifiers, in the terminal, on the page and in its data."""

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console
from robustkit.reports import print_table, write_report

from robustkit import Classifier, evaluate
from robustkit.classifier.smoothing import Smoothing
from robustkit.evidence.run import Run
from tests.small import data, linear


@pytest.fixture(scope="module")
def smoothed() -> Run:
    model = Classifier(linear(), name="smooth", smoothing=Smoothing(0.2, n=200, n0=20))
    return evaluate(model, dataset=data(12), attacks="fgsm", norm="L2", eps=["0.1", "0.2"])


@pytest.fixture(scope="module")
def both() -> Run:
    models = [
        Classifier(linear(), name="plain"),
        Classifier(linear(), name="smooth", smoothing=Smoothing(0.2, n=200, n0=20)),
    ]
    return evaluate(models, dataset=data(12), attacks="fgsm", norm="L2", eps=["0.1", "0.2"])


def printed(run: Run) -> str:
    console = Console(file=io.StringIO(), width=200)
    print_table(run, console)
    return console.file.getvalue()


def page(run: Run, folder) -> str:
    write_report([run], folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def certified(run: Run, eps_text: str) -> str:
    (row,) = run.results[(run.results.role == "certified") & (run.results.eps_text == eps_text)].itertuples()
    return f"{row.correct}/{row.n}"


def test_the_terminal_shows_it_under_the_worst_case(smoothed):
    lines = [line.split() for line in printed(smoothed).splitlines() if line.strip()]
    names = [line[0] for line in lines]

    places = [number for number, name in enumerate(names) if name == "certified"]
    for place, text in zip(places, ("0.1", "0.2"), strict=True):
        assert names[place - 1] == "worst-case"
        assert certified(smoothed, text) in lines[place]


def test_a_line_says_what_lies_between_the_two(smoothed):
    text = printed(smoothed)

    assert "certified: a lower bound" in text
    assert "sigma 0.2, 200 copies of each image" in text
    assert "at most 0.001" in text
    assert "lies between certified and worst-case" in text


def test_nothing_is_said_of_it_where_nothing_is_smoothed(make_run, tmp_path):
    run = make_run()

    assert "certified" not in printed(run)
    assert "certified" not in page(run, tmp_path).lower()


def test_the_page_has_both_bounds_in_its_head_its_tables_and_its_data(smoothed, tmp_path):
    text = page(smoothed, tmp_path)
    head = text[text.index("<header>") : text.index("</header>")]
    data = json.loads(re.search(r'id="robustkit-results">(.*?)</script>', text, re.DOTALL)[1])

    assert "upper bound" in head
    assert "are certified" in head
    assert certified(smoothed, "0.2") in text
    assert '<th scope="col" class="num strong">certified</th>' in text
    assert [row["role"] for row in data[0]["results"]].count("certified") == 2
    assert "lies between certified and worst-case" in text
    assert "arXiv:1902.02918" in text


def test_the_figure_tells_it_to_who_cannot_see_it(smoothed, tmp_path):
    label = re.search(r'<figure class="chart" role="img" aria-label="([^"]*)"', page(smoothed, tmp_path))[1]
    shares = [row.correct / row.n for row in smoothed.results[smoothed.results.role == "certified"].itertuples()]

    told = label.partition("certified smooth: ")[2]
    assert told.startswith(f"{100 * shares[0]:.1f} % at 0.1")
    assert f"{100 * shares[1]:.1f} % at 0.2" in told


def test_bounds_that_meet_are_told_apart_from_attacks_that_fail(smoothed, tmp_path):
    results = smoothed.results.copy()
    rows = results.role.isin(["worst-case", "certified"])
    results.loc[rows, ["n", "correct"]] = (40, 30)
    results.loc[results.role == "clean", ["n", "correct"]] = (40, 30)

    assert "the two bounds are equal" in page(replace(smoothed, results=results), tmp_path)
    assert "the two bounds are equal" not in page(smoothed, tmp_path)


def test_a_plain_model_in_the_same_table_has_no_lower_bound(both, tmp_path):
    text = page(both, tmp_path)

    assert text.count("not smoothed") == 2
    assert "certified, smooth: a lower bound" in printed(both)
