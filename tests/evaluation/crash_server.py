"""Evaluate a server in processes that are killed at chosen requests.

The server runs here. It kills the forked child that asks it with SIGKILL when a number of requests has arrived, before
it answers.
"""

import os
import signal
import sys
from pathlib import Path

from robustkit.black_box import RemoteAccess
from tests.black_box.loopback import Answer, scores, serving
from tests.small import data, evaluated, evidence

KILLS = (3, 11, 25, 26, 55)


def run(url: str, folder: Path, parallel: int):
    x, y = data(4)
    pictures = (x * 255).round() / 255
    return evaluated(
        url, folder, dataset=(pictures, y), attacks=["square:queries=15", "rays:queries=15"], eps="0.2", num_classes=10,
        names="model", remote=RemoteAccess(parallel=parallel),
    )  # fmt: skip


def in_child(url: str, folder: Path, parallel: int, children: list[int]) -> bool:
    """Whether the child was killed."""
    child = os.fork()
    if child == 0:
        try:
            run(url, folder, parallel)
        except BaseException as error:
            sys.stderr.write(f"{error}\n")
        os._exit(0)
    children.append(child)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def killed_by_a_server(folder: Path, parallel: int) -> dict[str, object]:
    """The requests that arrived, those in the ledger, those of the same command again, the pictures that were answered
    twice, how many children were killed, and whether the rows equal those of an uninterrupted run."""
    children: list[int] = []
    arrived = []

    def answer(png: bytes) -> Answer:
        arrived.append(png)
        if len(arrived) in KILLS:
            os.kill(children[-1], signal.SIGKILL)
            raise OSError("there is nobody left to answer")
        return scores(png)

    with serving(answer) as server:
        killed = sum(in_child(server.url, folder / "killed", parallel, children) for _ in KILLS)
        ended = run(server.url, folder / "killed", parallel)
        before = len(server.log)
        run(server.url, folder / "killed", parallel)
        log, again = len(server.log), len(server.log) - before
        # Two pictures are sent twice on purpose, to see whether the server repeats its answers.
        twice = len(server.replied) - len(set(server.replied))
        (counts,) = ended.manifest["requests"].values()
        run(server.url, folder / "whole", 1)
    one, other = (evidence(folder / name) for name in ("killed", "whole"))
    same = all(one[table] == other[table] for table in ("clean", "attacked", "queried"))
    return {"log": log, "ledger": counts["sent"], "again": again, "twice": twice, "killed": killed, "same": same}
