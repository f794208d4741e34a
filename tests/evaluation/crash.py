"""Run an evaluation in processes that are killed at chosen moments.

Each forked child has its own folder and kills itself with SIGKILL after a number of SQL statements; then the parent
resumes that folder.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from robustkit import Classifier
from robustkit.classifier.smoothing import Smoothing
from robustkit.evaluation import attacking
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from tests.small import cnn, csv, data, evaluated, evidence, linear


class Moment(NamedTuple):
    """What a kill left, and how the resumed run ended."""

    statements: int  # before the kill
    killed: bool
    rows: int  # in the folder after the kill
    kept: int  # adversarial examples, likewise
    same: bool  # whether the resumed run equals an uninterrupted one, byte by byte


def run(folder: Path) -> Run:
    smoothed = Classifier(linear(), name="smoothed", smoothing=Smoothing(0.2, n=12, n0=4))
    attacks, radii = ["fgsm", "noise:queries=3"], ["0.05", "0.15"]
    return evaluated(
        [cnn(), smoothed],
        folder,
        dataset=data(3),
        attacks=attacks,
        eps=radii,
        corruptions="contrast",
        severities=1,
        keep_adversarial=True,
        checks="none",
    )


def in_child(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{error}\n")
            os._exit(1)
    return os.waitpid(child, 0)[1]


def run_and_die(folder: Path, after: int) -> None:
    """Commit after every image, and kill this process after a number of statements, before or in a transaction."""
    attacking.COMMIT_SECONDS = 0
    opened, count = Store.__init__, 0

    def traced(self: Store, *arguments: object, **more: object) -> None:
        opened(self, *arguments, **more)

        def statement(text: str) -> None:
            nonlocal count
            count += 1
            if count > after:
                os.kill(os.getpid(), signal.SIGKILL)

        self._connection.set_trace_callback(statement)

    Store.__init__ = traced
    run(folder)


def moments(folder: Path) -> Iterator[Moment]:
    """One process after another, each killed later than the one before; the last one ends by itself."""
    whole = csv(run(folder / "whole"), folder / "whole")
    rows, after, ended = evidence(folder / "whole"), 2, signal.SIGKILL
    while ended == signal.SIGKILL:
        place = folder / str(after)
        ended = in_child(lambda place=place, after=after: run_and_die(place, after))
        rows_left, kept = (len(evidence(place).get(table, [])) for table in ("attacked", "witness"))
        same = csv(run(place), place) == whole
        same = same and all(evidence(place)[table] == rows[table] for table in rows if table != "run")
        yield Moment(after, ended == signal.SIGKILL, rows_left, kept, same)
        after += max(4, 3 * after // 5)
