"""Run folders whose evidence was replaced, cut or tampered with."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.case import Case, refused
from tests.hostile.output_cases import BIDI, with_run
from tests.hostile.word_cases import EVALUATE

RUN = "run/run.sqlite"
AGAIN = (*EVALUATE, "-o", "run")


def content(raw: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / RUN).write_bytes(raw)


def cut(size: int) -> Callable[[Path], object]:
    return lambda folder: os.truncate(folder / RUN, size)


def said(*statements: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        connection = sqlite3.connect(folder / RUN)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return change


def pipe(folder: Path) -> None:
    (folder / RUN).unlink()
    os.mkfifo(folder / RUN)


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "empty": content(b""), "text": content(b"hello"), "zeros": content(bytes(10_000)),
    "only a header": content(b"SQLite format 3\0"), "cut to a page": cut(4096), "cut in the middle": cut(20_000),
    "a pipe": pipe, "no table of the run": said("DROP TABLE run"),
    "no entries": said("DELETE FROM run"), "an identity that is no JSON": said("UPDATE run SET value = '{'"),
    "an identity that is a number": said("UPDATE run SET value = '5' WHERE key = 'identity'"),
    "an identity without entries": said("UPDATE run SET value = '{}' WHERE key = 'identity'"),
    "another schema": said("UPDATE run SET value = replace(value, '\"schema\": 6', '\"schema\": 9')"),
}  # fmt: skip
CHANGED: dict[str, Callable[[Path], object]] = {
    "warnings that are a number": said("UPDATE run SET value = '5' WHERE key = 'warnings'"),
    "a command with escape codes": said(f"UPDATE run SET value = json_quote('{BIDI}') WHERE key = 'command'"),
    "model names with escape codes": said(f"UPDATE attacked SET model = '{BIDI}'"),
    "labels that are texts": said("UPDATE clean SET label = 'x'"),
    "radii that are blobs": said("UPDATE attacked SET linf = x'ff'"),
    "no rows": said("DELETE FROM clean", "DELETE FROM attacked"),
    "rows of images that are not there": said("UPDATE attacked SET sample = sample + 1000"),
}


def cases() -> Iterator[tuple[str, Case]]:
    for name, change in UNREADABLE.items():
        yield f"evidence: {name}, report", refused("report", "run", prepare=with_run(change))
    for name, change in CHANGED.items():
        yield (
            f"evidence: {name}, report",
            Case(
                ("report", "run"),
                with_run(change),
                may_change=("run/report.html", "run/results.csv", "run/samples.csv"),
            ),
        )
    for name in ("text", "zeros", "a pipe", "cut to a page", "an identity that is a number"):
        # SQLite writes a mark into the header of a file that it opens for writing.
        yield f"evidence: {name}, evaluate", refused(*AGAIN, prepare=with_run(UNREADABLE[name]), may_change=(RUN,))
