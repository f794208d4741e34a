"""What several workers gain by the batches that they compute: `python bench/lanes.py [--images N] [--width W]`.

The grid of bench/workers.py is run once, in this process. Then the agenda hands out its lanes to workers that exist
only as clocks: a lane takes the time of the batches in which its images would be queried, from the passes that each
image needed in the run. So the figures are the same on a busy machine. They count idle workers and batches that are
filled up; they leave out start-up, the comparison of batch sizes, the first process, and cores that slow each other
down.
"""

import argparse
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from workers import NET

from robustkit import Classifier
from robustkit.data import load_dataset
from robustkit.evaluation.agenda import Agenda
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.lanes import Lane
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import Evaluation, resolve
from robustkit.evidence.rows import AttackRecord, CleanRecord, NearnessRecord, Row
from robustkit.evidence.store import Store
from robustkit.host.progress import Silent

SIZES = (16, 24, 32, 48, 64)  # rows of a batch, as `BatchSizes.fit` takes them on a CPU
BACKWARD = 2.8  # a forward and a backward pass, in forward passes
STEP = 200_000  # multiplications that a step of the engine costs, however few rows it has


@dataclass
class Clock:
    """A worker that computes nothing."""

    free: float = 0.0  # when it is, in multiplications of one worker
    busy: float = 0.0
    model: int | None = None
    lane: Lane | None = None


class Grid:
    """A finished run, and what its lanes cost."""

    def __init__(self, evaluation: Evaluation, folder: Path) -> None:
        self.evaluation = evaluation
        carry_out(evaluation, folder, Silent())
        self.rows: dict[tuple[str, str, str, int], list[Row]] = {}
        store = Store(folder, reading=True)
        for kind in (CleanRecord, AttackRecord, NearnessRecord):
            for row in store.every(kind):
                place = ("0", "clean") if isinstance(row, CleanRecord) else (row.eps_text, row.attack)
                self.rows.setdefault((row.model, *place, row.sample), []).append(row)
        store.close()

    def of(self, lane: Lane) -> list[list[Row]]:
        """The rows of each image."""
        model = self.evaluation.classifiers[lane.model].name
        attack = None if lane.attack is None else self.evaluation.plan.attacks[lane.attack]
        place = ("0", "clean") if attack is None else (attack.threat.eps_text, attack.name)
        return [self.rows[(model, *place, image)] for image in lane.images]

    def cost(self, lane: Lane) -> float:
        """Multiplications of a lane."""
        layers = self.evaluation.classifiers[lane.model].network.modules()
        row = sum(layer.weight.numel() * 64 for layer in layers if isinstance(layer, nn.Conv2d))
        if lane.attack is None:
            return row * sum(size for size, _ in batches([1] * len(lane.images)))
        passes = [max(each.forwards, each.backwards) for rows in self.of(lane) for each in rows
                  if isinstance(each, AttackRecord)]  # fmt: skip
        return sum(steps * (BACKWARD * row * size + STEP) for size, steps in batches(passes))


def batches(passes: list[int]) -> Iterator[tuple[int, int]]:
    """The rows of batches and how many follow with so many, for images that leave after so many passes each."""
    waiting, live = deque(each for each in passes if each), list[int]()
    while waiting or live:
        while waiting and len(live) < SIZES[-1]:
            live.append(waiting.popleft())
        steps = min(live)
        yield min(size for size in SIZES if size >= len(live)), steps
        live = [each - steps for each in live if each > steps]


def clocks(grid: Grid, count: int) -> list[Clock]:
    """So many workers at the end of the run."""
    store = Store(None)
    store.set_manifest(warnings=[], seconds={})
    agenda, workers, now = Agenda(grid.evaluation, store), [Clock() for _ in range(count)], 0.0
    while agenda.left:
        for worker in workers:
            if worker.lane is None and (lane := agenda.take(count, worker.model)) is not None:
                cost = grid.cost(lane)
                worker.lane, worker.model, worker.free = lane, lane.model, now + cost
                worker.busy += cost
        first = min((worker for worker in workers if worker.lane is not None), key=lambda worker: worker.free)
        lane, first.lane, now = first.lane, None, first.free
        assert lane is not None
        agenda.write(lane.model, [row for rows in grid.of(lane) for row in rows])
        agenda.done(lane)
    store.close()
    return workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[450])
    parser.add_argument("--width", type=int, default=1, help="times the channels of each network")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3, 4])
    given = parser.parse_args()
    torch.set_num_threads(1)
    made: dict[str, object] = {}
    exec(NET, made)
    print("images  workers  10^9 multiplications until the end  efficiency  computed, of one  idle")
    for images in given.images:
        models = [Classifier(made[name](given.width), name=name) for name in ("small", "middle", "large")]
        evaluation = resolve(EvaluationRequest(
            models, dataset=load_dataset("digits", "train"), samples=images, eps=["0.02", "0.1"],
            attacks=["fgsm", "apgd:steps=100", "default"], watch=Silent(),
        ))  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            grid = Grid(evaluation, Path(folder))
        (one,) = clocks(grid, 1)
        for count in (1, *given.workers):
            workers = clocks(grid, count)
            end, busy = max(worker.free for worker in workers), sum(worker.busy for worker in workers)
            figures = f"{one.busy / count / end:11.2f} {busy / one.busy:17.2f} {1 - busy / count / end:5.2f}"
            print(f"{images:6} {count:8} {end / 1e9:35.0f} {figures}", flush=True)


if __name__ == "__main__":
    main()
