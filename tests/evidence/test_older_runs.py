"""Runs that an older version wrote are still read, and go on, or are refused in one line.

The evidence of two of them is stored here as SQL, with the tables it gave.
"""

import io
import sqlite3
from pathlib import Path

import pytest
from rich.console import Console
from robustkit.reports import print_table, write_csv, write_report

from robustkit import Classifier, UserError, evaluate, load_run
from robustkit.evidence.run import Run
from tests.small import Recorder, data, evidence, linear

DATA = Path(__file__).parent / "data"
# That a run of a plain model may have, and the first version did not.
NEWER = ("answers", "checked", "confidence", "corrupted", "drawn", "failed", "near", "original", "queried", "witness")

NEWEST_OF_NEAR = ("random_error", "random_bend", "clean_step", "clean_way", "clean_unseen", "unseen", "at_clean")


# 12 digits under fgsm and the ensemble `standard`; 12 digits under fgsm, and certified.
@pytest.fixture(params=["plain", "smoothed"])
def older(request, tmp_path) -> tuple[str, Run]:
    opened = sqlite3.connect(tmp_path / "run.sqlite")
    opened.executescript((DATA / f"{request.param}.sql").read_text(encoding="utf-8"))
    opened.close()
    return request.param, load_run(tmp_path)


def test_an_older_run_gives_the_tables_that_it_gave(older):
    name, run = older
    write_csv(run, run.folder)

    for table in ("results", "samples"):
        assert (run.folder / f"{table}.csv").read_bytes() == (DATA / f"{name}-{table}.csv").read_bytes()


def test_an_older_run_has_a_report(older):
    name, run = older
    worst = run.results[run.results.role == ("certified" if name == "smoothed" else "worst-case")].iloc[0]
    console = Console(file=io.StringIO(), width=200)
    write_report([run], run.folder / "report.html")
    print_table(run, console)

    for text in ((run.folder / "report.html").read_text(encoding="utf-8"), console.file.getvalue()):
        assert f"{worst.correct}/12" in text
        assert f"{100 * worst.accuracy:.1f} %" in text
    assert len(run.pictures) == 1


def run(folder, samples):
    model = Classifier(linear(), name="linear")
    evaluate(
        model, dataset=data(12), samples=samples, attacks="fgsm", eps=["0.05", "0.1"], out=folder, watch=Recorder()
    )


def changed(folder, *statements):
    opened = sqlite3.connect(folder / "run.sqlite")
    opened.executescript(";".join(statements))
    opened.close()


def test_an_older_run_goes_on_with_the_rows_of_a_run_in_one_go(tmp_path):
    run(tmp_path / "whole", 12)
    run(tmp_path / "older", 8)
    changed(tmp_path / "older", *(f"DROP TABLE {name}" for name in NEWER))
    run(tmp_path / "older", 12)
    older, whole = evidence(tmp_path / "older"), evidence(tmp_path / "whole")

    assert older.keys() == whole.keys()
    assert (older["clean"], older["attacked"]) == (whole["clean"], whole["attacked"])


def test_a_run_whose_rows_mean_something_else_is_refused_in_one_line(tmp_path):
    run(tmp_path, 8)
    changed(tmp_path, """UPDATE run SET value = replace(value, '"schema": 6', '"schema": 0') WHERE key = 'identity'""")

    with pytest.raises(UserError, match=r"^.* was written by another version of robustkit; evaluate again.*$"):
        load_run(tmp_path)
    with pytest.raises(UserError, match=r"^.*schema was 0, now 6\. Give another --out.*$"):
        run(tmp_path, 12)


@pytest.mark.parametrize(
    "changes",
    [
        ["attacked RENAME COLUMN queries_to_break TO question"],
        *([f"near DROP COLUMN {name}" for name in NEWEST_OF_NEAR[:count]] for count in (2, 5, 6, 7)),
    ],
    ids=["question", "before schema 6", "before schema 5", "before schema 4", "before schema 3"],
)
def test_a_run_with_columns_of_an_older_version_is_refused_in_one_line(tmp_path, changes):
    run(tmp_path, 8)
    changed(tmp_path, *(f"ALTER TABLE {each}" for each in changes))

    for use in (load_run, lambda folder: run(folder, 12)):
        with pytest.raises(UserError, match=r"^.* was written by another version of robustkit; .* another --out\.$"):
            use(tmp_path)
