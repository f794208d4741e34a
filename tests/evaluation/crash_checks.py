"""Run checks in processes that are killed: `python crash_checks.py FOLDER LEVEL IMAGES MOMENTS [RULE,RULE...]`.

The attacks are finished first; then a forked child kills itself with SIGKILL after a number of rows of the checks, and
the parent goes on where it stopped, with another batch size. Prints one JSON line per moment.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import torch

from robustkit.checks import register
from robustkit.evidence.run import Run
from robustkit.evidence.store import Store
from tests.evaluation.crash import in_child
from tests.small import cnn, csv, data, evaluated, evidence

torch.set_num_threads(1)


def run(folder: Path, images: int, checks: str, batch_size: int | str = "auto") -> Run:
    request = {"dataset": data(images), "attacks": ["fgsm", "pgd:steps=10"], "eps": "0.1"}
    return evaluated(cnn(), folder, **request, checks=checks, batch_size=batch_size)


def run_and_die(folder: Path, images: int, level: str, rows: int) -> None:
    written, count = Store.write, 0

    def write(self: Store, given: list[object]) -> None:
        nonlocal count
        count += 1
        if count > rows:
            os.kill(os.getpid(), signal.SIGKILL)
        written(self, given)

    Store.write = write
    run(folder, images, level)


def main(folder: Path, level: str, images: int, moments: int) -> None:
    run(folder / "attacked", images, "quick")
    shutil.copytree(folder / "attacked", folder / "whole")
    whole = run(folder / "whole", images, level)
    files, rows = csv(whole, folder / "whole"), evidence(folder / "whole")
    for number in range(moments):
        place, after = folder / str(number), ((2 * number + 1) * len(rows["checked"])) // (2 * moments)
        shutil.copytree(folder / "attacked", place)
        ended = in_child(lambda place=place, after=after: run_and_die(place, images, level, after))
        left = len(evidence(place)["checked"])
        resumed = run(place, images, level, batch_size=3)
        same = csv(resumed, place) == files and resumed.checks == whole.checks
        same = same and evidence(place)["checked"] == rows["checked"]
        killed = ended == signal.SIGKILL
        line = {"after": after, "killed": killed, "rows": left, "all": len(rows["checked"]), "same": same}
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if sys.argv[5:]:
        register.RULES = tuple(rule for rule in register.RULES if rule.name in sys.argv[5].split(","))
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
