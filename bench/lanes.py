"""What several workers gain by the batches that they compute: `python bench/lanes.py [--images N ...] [--width W]`.

The grid of bench/workers.py, or one of other attacks and models, is run once, here. Then the agenda hands out
its lanes to workers that exist only as clocks: each takes images into its batch as others leave it, and a batch takes
the time of its rows, from the passes that each image needed in the run. So the figures are the same on a busy machine.
They count idle workers and batches that are filled up; they leave out start-up, the comparison of batch sizes, the
first process, the time until rows are committed, and cores that slow each other down.
"""

import argparse
import tempfile
from collections import deque
from dataclasses import dataclass, field, replace
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
    """A worker that computes nothing: what it would do with the images of its lanes."""

    grid: "Grid"
    now: float = 0.0  # in multiplications of one worker
    busy: float = 0.0
    model: int | None = None  # of its last lane
    lanes: dict[int, Lane] = field(default_factory=dict)  # those with images left, by their number
    asks: bool = False  # for more images
    begun: int = 0  # lanes
    waiting: deque[tuple[int, int]] = field(default_factory=deque)  # passes of an image, and the number of its lane
    live: list[tuple[int, int]] = field(default_factory=list)  # passes that are left, and the number of the lane

    def take(self, lane: Lane) -> None:
        """Be handed a lane."""
        self.begun += 1
        self.lanes[self.begun], self.model, self.asks = lane, lane.model, False
        self.waiting.extend((each, self.begun) for each in self.grid.passes(lane))

    @property
    def images(self) -> Lane:
        """All images that it has."""
        first, *others = self.lanes.values()
        return replace(first, images=first.images + tuple(image for each in others for image in each.images))

    def go_on(self) -> list[Lane]:
        """Compute until images leave the batch; returns the lanes that are finished."""
        lane = next(iter(self.lanes.values()))
        while self.waiting and len(self.live) < SIZES[-1]:
            self.live.append(self.waiting.popleft())
        steps = min((each for each, _ in self.live), default=0)
        if self.live:
            if lane.attack is not None and len(self.live) < SIZES[-1]:
                steps = min(steps, 1)  # it looks for further images after each step
            size = min(size for size in SIZES if size >= len(self.live))
            spent = steps * self.grid.step(lane, size)
            self.now, self.busy = self.now + spent, self.busy + spent
        self.live = [(each - steps, number) for each, number in self.live if each > steps]
        # As the engine does: a quarter of the slots is begun ahead.
        self.asks = lane.attack is not None and len(self.waiting) <= SIZES[-1] // 4
        left = {number for _, number in (*self.live, *self.waiting)}
        return [self.lanes.pop(number) for number in [*self.lanes] if number not in left]


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

    def passes(self, lane: Lane) -> list[int]:
        """The passes of each image."""
        if lane.attack is None:
            return [1] * len(lane.images)
        return [max((max(row.forwards, row.backwards) for row in rows if isinstance(row, AttackRecord)), default=0)
                for rows in self.of(lane)]  # fmt: skip

    def step(self, lane: Lane, size: int) -> float:
        """Multiplications of a batch."""
        layers = self.evaluation.classifiers[lane.model].network.modules()
        row = sum(layer.weight.numel() * 64 for layer in layers if isinstance(layer, nn.Conv2d))
        return row * size if lane.attack is None else BACKWARD * row * size + STEP


def clocks(grid: Grid, count: int) -> list[Clock]:
    """So many workers at the end of the run."""
    store = Store(None)
    store.set_manifest(warnings=[], seconds={})
    agenda, workers, now = Agenda(grid.evaluation, store), [Clock(grid) for _ in range(count)], 0.0
    while agenda.left:
        for worker in workers:
            if not worker.lanes and (lane := agenda.take(count, worker.model)) is not None:
                worker.now = max(worker.now, now)
                worker.take(lane)
        for worker in workers:
            if worker.asks and worker.lanes:
                lane = agenda.more(worker.images, count)
                if lane is not None:
                    worker.take(lane)
        first = min((worker for worker in workers if worker.lanes), key=lambda worker: worker.now)
        now = first.now
        for lane in first.go_on():
            agenda.write(lane.model, [row for rows in grid.of(lane) for row in rows])
            agenda.done(lane)
    store.close()
    return workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[450])
    parser.add_argument("--width", type=int, default=1, help="times the channels of each network")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3, 4])
    parser.add_argument("--attacks", nargs="+", default=["fgsm", "apgd:steps=100", "default"])
    parser.add_argument("--models", nargs="+", default=["small", "middle", "large"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    made: dict[str, object] = {}
    exec(NET, made)
    print("images  workers  10^9 multiplications until the end  efficiency  computed, of one  idle")
    for images in given.images:
        models = [Classifier(made[name](given.width), name=name) for name in given.models]
        evaluation = resolve(EvaluationRequest(
            models, dataset=load_dataset("digits", "train"), samples=images, eps=["0.02", "0.1"],
            attacks=given.attacks, watch=Silent(),
        ))  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            grid = Grid(evaluation, Path(folder))
        (one,) = clocks(grid, 1)
        for count in (1, *given.workers):
            workers = clocks(grid, count)
            end, busy = max(worker.now for worker in workers), sum(worker.busy for worker in workers)
            figures = f"{one.busy / count / end:11.2f} {busy / one.busy:17.2f} {1 - busy / count / end:5.2f}"
            print(f"{images:6} {count:8} {end / 1e9:35.0f} {figures}", flush=True)


if __name__ == "__main__":
    main()
