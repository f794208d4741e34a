"""How long a run takes on many GPUs, and where its coordinator is full: `python bench/scale.py [--images N]`.

First the coordinator is measured: `Crew.run` with stand-in workers, processes that compute nothing and send made-up
rows at a steady pace. What it commits in a second grows with their number until it is full. Then comes the model for
runs that nobody has made: seconds = max(passes / (GPUs x passes a second), rows / rows a second), for a run in one
folder and for one whose shards have a coordinator each.
"""

import argparse
import math
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch
from coordinator import problem
from made_up_rows import made_up_row

from robustkit import Classifier
from robustkit.evaluation.crew import Crew
from robustkit.evaluation.lanes import Lane, LaneDone, NewRows, Ready
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import Evaluation, resolve
from robustkit.evaluation.worker import fingerprints
from robustkit.evidence.rows import AttackRecord, CleanRecord
from robustkit.evidence.store import Store
from robustkit.host.progress import Silent

_TOGETHER = 0.5  # seconds of rows that a worker sends in one message, as a true one does


class StandIn:
    """A worker process that sends made-up rows."""

    def __init__(self, evaluation: Evaluation, pace: float) -> None:
        context = get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_live, args=(theirs, evaluation, pace), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, lane: Lane) -> None:
        self.connection.send(lane)

    def receive(self) -> object:
        return self.connection.recv()

    def ended(self) -> str:
        return "ended"

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


class StandIns:
    """Starts them."""

    def __init__(self, evaluation: Evaluation, pace: float) -> None:
        self.evaluation, self.pace = evaluation, pace

    def room(self) -> int:
        return 1024

    def close(self) -> None:
        pass

    def start(self, number: int) -> StandIn:
        return StandIn(self.evaluation, self.pace)

    def heard_of(self, workers: list[StandIn]) -> list[StandIn]:
        found = wait([worker.connection for worker in workers])
        return [worker for worker in workers if worker.connection in found]


def _live(connection: Connection, evaluation: Evaluation, pace: float) -> None:
    connection.send(Ready(fingerprints(evaluation), ()))
    size, due = max(1, int(pace * _TOGETHER)), time.monotonic()
    while True:
        lane = connection.recv()
        due = max(due, time.monotonic())
        for start in range(0, len(lane.images), size):
            part = lane.images[start : start + size]
            due += len(part) / pace
            time.sleep(max(0.0, due - time.monotonic()))
            connection.send(NewRows(tuple(made_up_row(evaluation, lane, image) for image in part)))
        connection.send(LaneDone({}))


def measured(images: int, workers: int, pace: float) -> float:
    """Rows a second that a coordinator commits."""
    model, x, y = problem(images)
    request = EvaluationRequest(
        [Classifier(model, name="linear")], dataset=(x, y), samples=None,
        attacks=[f"pgd:steps={k + 1}" for k in range(4)], eps=["0.01"], workers=workers, watch=Silent(),
    )  # fmt: skip
    evaluation = resolve(request)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.set_manifest(warnings=[], seconds={})
        with Crew(evaluation, store, Silent()) as crew:
            crew.place = StandIns(evaluation, pace)
            start = time.monotonic()
            crew.run(evaluation)
            seconds = time.monotonic() - start
        rows = len(store.rows(AttackRecord, "linear")) + len(store.rows(CleanRecord, "linear"))
        store.close()
    return rows / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=20_000, help="of the measurement")
    parser.add_argument("--pace", type=float, default=1000, help="rows a second of a stand-in worker")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--rows", type=float, default=8, help="rows of an image in the modelled run")
    parser.add_argument("--passes", type=float, default=100, help="forwards and backwards of an image in it")
    parser.add_argument("--speed", type=float, default=2000, help="forwards or backwards a second of a GPU in it")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {workers: measured(given.images, workers, given.pace) for workers in given.workers}
    full = max(found.values())
    print(f"{given.images} images, {given.pace:.0f} rows a second from each worker; a coordinator commits {full:.0f}")
    print("workers  rows a second  predicted")
    for workers, rate in found.items():
        print(f"{workers:7} {rate:14.0f} {min(workers * given.pace, full):10.0f}")
    each = given.speed / given.passes * given.rows
    print(f"\n{given.passes:g} passes and {given.rows:g} rows an image, {given.speed:g} passes a second of a GPU:")
    print(f"a GPU sends {each:.0f} rows a second, so a coordinator is full with {full / each:.0f} GPUs")
    print("  images   GPUs  hours in one folder  shards for all GPUs  hours with these")
    for images in (10**4, 10**6, 10**8):
        for gpus in (1, 8, 64, 1000):
            computing, writing = images * given.passes / given.speed / gpus, images * given.rows / full
            shards = math.ceil(gpus * each / full)
            hours = [max(computing, writing / count) / 3600 for count in (1, shards)]
            print(f"{images:8.0e} {gpus:6} {hours[0]:20.3g} {shards:20} {hours[1]:17.3g}")


if __name__ == "__main__":
    main()
