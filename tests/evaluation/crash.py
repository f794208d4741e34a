"""Run an evaluation in processes that are killed at chosen moments: `python crash.py FOLDER COUNT`.

One process imports torch, and its forked children die by SIGKILL after so many statements of SQL, each in a folder of
its own; then each folder is gone on with. Prints a line for each moment: statements, rows kept, whether all is as in a
run that was left alone.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from robustkit import Classifier, evaluate
from robustkit.classifier.smoothing import Smoothing
from robustkit.evaluation import runner
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from robustkit.primitives import registry
from tests.small import TINY, cnn, csv, data, evidence, linear

registry.ENSEMBLES["tiny"] = TINY
torch.set_num_threads(1)


def run(folder: Path) -> Run:
    smoothed = Classifier(linear(), name="smoothed", smoothing=Smoothing(0.2, n=20, n0=5))
    return evaluate([cnn(), smoothed], dataset=data(8), attacks=["fgsm", "tiny"], eps=["0.05", "0.15"], out=folder)


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


def dying(folder: Path, after: int) -> None:
    """Commit every image at once, and die after so many statements, before or within a transaction."""
    runner._COMMIT_SECONDS = 0
    opened, count = Store.__init__, 0

    def traced(self: Store, *arguments: object, **more: object) -> None:
        opened(self, *arguments, **more)

        def statement(text: str) -> None:
            nonlocal count
            count += 1
            if count > after:
                os.kill(os.getpid(), signal.SIGKILL)

        self._open.set_trace_callback(statement)

    Store.__init__ = traced
    run(folder)


def main(folder: Path, moments: int) -> None:
    whole = csv(run(folder / "whole"), folder / "whole")
    rows = evidence(folder / "whole")
    after = 2
    for number in range(moments):
        place = folder / str(number)
        ended = in_child(lambda place=place, after=after: dying(place, after))
        kept = len(evidence(place).get("attacked", []))
        same = csv(run(place), place) == whole
        same = same and all(evidence(place)[table] == rows[table] for table in rows if table != "run")
        told = {"after": after, "killed": ended == signal.SIGKILL, "kept": kept, "same": same}
        sys.stdout.write(json.dumps(told) + "\n")
        if ended != signal.SIGKILL:
            break
        after += max(3, after // 3)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
