"""Run checks in processes that are killed.

The attacks are finished first. Then a forked child says when a number of rows of the checks are in the evidence, and
waits; the parent kills it with SIGKILL and goes on where it stopped, with another batch size.
"""

import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from robustkit import load_run
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from tests.small import cnn, data, evaluated, evidence


class Moment(NamedTuple):
    """A kill, and what the run that went on has in common with one that nobody killed."""

    after: int  # rows of checks
    killed: bool
    rows: int  # that were left
    same_evidence: bool
    same_files: bool


def run(folder: Path, images: int, checks: str, batch_size: int | str = "auto") -> Run:
    request = {"dataset": data(images), "attacks": ["fgsm", "pgd:steps=4"], "eps": "0.1"}
    return evaluated(cnn(), folder, **request, checks=checks, batch_size=batch_size)


def files(folder: Path) -> dict[str, bytes]:
    """The derived files, written at one place and with the same times."""
    place = folder.with_name("shown")
    shutil.copytree(folder, place)
    with sqlite3.connect(place / "run.sqlite") as store:
        store.execute("UPDATE run SET value = '{}' WHERE key = 'seconds'")
        store.execute("UPDATE run SET value = '\"2026-01-01T00:00:00+00:00\"' WHERE key IN ('created', 'finished')")
    store.close()
    load_run(place).write()
    found = {file.name: file.read_bytes() for file in place.iterdir() if file.suffix in (".csv", ".html")}
    shutil.rmtree(place)
    return found


def run_and_wait(folder: Path, images: int, level: str, rows: int, ready: int) -> None:
    written, count = Store.write, 0

    def write(self: Store, given: list[object]) -> None:
        nonlocal count
        written(self, given)
        count += 1
        if count == rows:
            os.write(ready, b"1")
            signal.pause()

    Store.write = write
    run(folder, images, level)


def killed(folder: Path, images: int, level: str, rows: int) -> bool:
    """Whether a child was killed with so many rows of checks in the evidence."""
    ready, ours = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            run_and_wait(folder, images, level, rows, ours)
        finally:
            os._exit(1)
    os.close(ours)
    os.read(ready, 1)  # empty if the child has ended
    os.close(ready)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def moments(folder: Path, level: str, images: int) -> Iterator[Moment]:
    """After the first row, and before the last one."""
    run(folder / "attacked", images, "quick")
    shutil.copytree(folder / "attacked", folder / "whole")
    whole = run(folder / "whole", images, level)
    expected, rows = files(folder / "whole"), evidence(folder / "whole")["checked"]
    assert sorted(expected) == ["report.html", "results.csv", "samples.csv"]
    for after in (1, len(rows) - 1):
        place = folder / str(after)
        shutil.copytree(folder / "attacked", place)
        ended = killed(place, images, level, after)
        left = len(evidence(place)["checked"])
        resumed = run(place, images, level, batch_size=3)
        same = resumed.checks == whole.checks and evidence(place)["checked"] == rows
        yield Moment(after, ended, left, same, files(place) == expected)
