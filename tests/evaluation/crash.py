"""Run an evaluation in processes that are killed at chosen moments: `python crash.py FOLDER COUNT`.

One process imports torch. Each of its forked children has its own folder and kills itself with SIGKILL after a number
of SQL statements; then the parent resumes that folder. Prints one JSON line per moment: the number of statements, the
rows and the adversarial examples that were in the folder after the kill, and whether the resumed run equals an
uninterrupted one, byte by byte. One more line is about a model that is a server, and kills the process that asks it.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from robustkit import Classifier
from robustkit.classifier.smoothing import Smoothing
from robustkit.evaluation import attacking
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from tests.evaluation.crash_server import killed_by_a_server
from tests.small import cnn, csv, data, evaluated, evidence, linear

torch.set_num_threads(1)


def run(folder: Path) -> Run:
    smoothed = Classifier(linear(), name="smoothed", smoothing=Smoothing(0.2, n=12, n0=4))
    attacks, radii = ["fgsm", "noise:queries=3"], ["0.05", "0.15"]
    return evaluated(
        [cnn(), smoothed],
        folder,
        dataset=data(6),
        attacks=attacks,
        eps=radii,
        corruptions="contrast",
        severities=[1, 5],
        keep_adversarial=True,
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


def main(folder: Path, moments: int) -> None:
    whole = csv(run(folder / "whole"), folder / "whole")
    rows = evidence(folder / "whole")
    after = 2
    for number in range(moments):
        place = folder / str(number)
        ended = in_child(lambda place=place, after=after: run_and_die(place, after))
        rows_left, kept = (len(evidence(place).get(table, [])) for table in ("attacked", "witness"))
        same = csv(run(place), place) == whole
        same = same and all(evidence(place)[table] == rows[table] for table in rows if table != "run")
        moment = {"after": after, "killed": ended == signal.SIGKILL, "rows": rows_left, "kept": kept, "same": same}
        sys.stdout.write(json.dumps(moment) + "\n")
        if ended != signal.SIGKILL:
            break
        after += max(3, after // 2)
    for parallel in (1, 4):
        sys.stdout.write(json.dumps(killed_by_a_server(folder / f"server {parallel}", parallel)) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
