import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from robustkit.reports import write_report
from robustkit.reports.evaluation.html import page

from robustkit.errors import UserError
from robustkit.evidence.run import Run
from robustkit.evidence.sample_rows import SampleRows
from tests.reports.pages import HOSTILE, Page
from tests.small import data, evaluated, linear

LINF = (("Linf", 0.1, "0.1"),)


@pytest.fixture(scope="module")
def text(run: Run) -> str:
    return page([run])


@pytest.fixture(scope="module")
def hostile(make_run: Callable[..., Run]) -> str:
    run = make_run(n=40, models=(HOSTILE, "b"), class_names=(HOSTILE,) * 10, threats=LINF, folder=f"runs/{HOSTILE[:6]}")
    manifest = run.manifest | {"command": HOSTILE, "warnings": [HOSTILE]}
    return page([replace(run, manifest=manifest)])


def test_a_page_loads_nothing_and_runs_nothing_whatever_the_names(text: str, hostile: str) -> None:
    for one in (text, hostile):
        Page(one).check_safe()
    assert HOSTILE in Page(hostile).words()


def test_the_same_run_gives_the_same_bytes(text: str, run: Run, tmp_path: Path) -> None:
    write_report([run], tmp_path / "report.html")

    assert (tmp_path / "report.html").read_bytes() == text.encode()


def test_ids_are_unique(make_run: Callable[..., Run], run: Run) -> None:
    both = page([run, make_run(n=40, threats=LINF, folder="runs/second")])

    ids = Page(both).ids()
    assert len(ids) == len(set(ids))


def test_the_results_can_be_read_back_from_the_page(hostile: str, text: str, run: Run) -> None:
    (data,) = Page(text).data()

    read = pd.DataFrame(data["results"]).astype(dict(run.results.dtypes))  # type: ignore[call-overload]
    pd.testing.assert_frame_equal(read, run.results, check_exact=True)
    assert Page(hostile).data()[0]["class_names"] == [HOSTILE] * 10


def test_tables_and_pictures_speak_to_who_cannot_see_them(text: str) -> None:
    tags = Page(text).tags

    assert dict(tags)["html"] == {"lang": "en"}
    assert all(attrs.get("alt") for tag, attrs in tags if tag == "img")
    assert all(attrs.get("scope") for tag, attrs in tags if tag == "th")
    assert sum(tag == "caption" for tag, _ in tags) == sum(tag == "table" for tag, _ in tags)


def test_the_first_heading_is_the_answer_and_its_bound_is_named(text: str, run: Run) -> None:
    (heading,) = [data for tag, data in Page(text).texts if tag == "h1" and data.strip()]

    assert "resnet18-adversarial" in heading
    assert "Linf 0.1" in heading
    assert "upper bound" in Page(text).words()


def test_runs_over_the_same_images_share_one_table(make_run: Callable[..., Run]) -> None:
    runs = [make_run(n=40, models=("m",), threats=LINF, folder=f"runs/{name}") for name in ("first", "second")]

    words = Page(page(runs)).words()

    assert "m (first)" in words
    assert "m (second)" in words
    assert words.count("Accuracy under each attack") == 1
    assert "Not comparable" not in words


def test_runs_with_other_settings_show_where_they_differ(make_run: Callable[..., Run]) -> None:
    first, second = (make_run(n=40, models=("m",), threats=LINF, folder=f"runs/{name}") for name in ("first", "second"))
    identity = second.manifest["identity"] | {"seed": 7}

    words = Page(page([first, replace(second, manifest=second.manifest | {"identity": identity})])).words()

    assert "Where the runs differ" in words


def test_a_run_over_other_images_stands_apart(make_run: Callable[..., Run]) -> None:
    runs = [make_run(n=n, models=("m",), threats=LINF) for n in (40, 50)]

    words = Page(page(runs)).words()

    assert "Not comparable with the section above" in words
    assert words.count("Accuracy under each attack") == 2


def test_an_unfinished_run_says_how_far_it_is_and_marks_its_numbers(make_run: Callable[..., Run]) -> None:
    words = Page(page([make_run(n=40, finished=None, decided=10, threats=LINF)])).words()

    assert "Unfinished: 10 of 40" in words
    assert "worst-case partial" in words
    assert "0.1 partial" in words
    assert "differences are not tested yet" in words


def test_a_finished_run_is_not_called_partial(text: str) -> None:
    assert "partial and will change" not in text
    assert 'class="partial"' not in text


@pytest.mark.parametrize(
    "plan",
    [
        {"hardness": 1e6},
        {"hardness": 1e-6},
        {"threats": LINF},
        {"n": 1},
        {"threats": ()},
        {"class_names": ()},
        {"pictures": False},
        {"clean": 0.0, "n": 20},
    ],
    ids=[
        "nothing broken",
        "all broken",
        "one radius",
        "one image",
        "no attack",
        "no names",
        "no pictures",
        "all wrong",
    ],
)
def test_the_page_stands_at_the_edges(plan: dict[str, object], make_run: Callable[..., Run]) -> None:
    words = Page(page([make_run(**plan)])).words()

    assert "nan" not in words.split()
    assert "Methods" in words


def test_attacks_that_break_nothing_raise_a_question(make_run: Callable[..., Run]) -> None:
    assert "No attack broke any image" in page([make_run(n=40, hardness=1e6, threats=LINF)])


def test_a_run_without_results_is_a_page_all_the_same(run: Run) -> None:
    manifest = run.manifest | {"finished": None}
    empty = Run(run.folder, manifest, run.results.iloc[:0], SampleRows.of_frame(run.samples.iloc[:0]), [], ())

    assert "Unfinished: 0 of 90" in Page(page([empty])).words()


def test_no_run_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one run"):
        write_report([], tmp_path / "report.html")


def test_images_are_broken_by_every_attack_only_where_there_are_several(run: Run) -> None:
    alone = evaluated(linear(), None, dataset=data(12), attacks="default", eps=0.1, norm="Linf")

    assert " broken by every attack, " in page([run])
    assert re.search(r"<small>\d+ images: \d+ broken, \d+ not</small>", page([alone]))
