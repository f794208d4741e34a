"""Runs that an older version wrote are still read: their evidence is stored here as SQL, with the tables it gave."""

import io
import sqlite3
from pathlib import Path

import pytest
from rich.console import Console
from robustkit.reports import print_table, write_csv, write_report

from robustkit import load_run
from robustkit.evidence.run import Run

DATA = Path(__file__).parent / "data"


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
