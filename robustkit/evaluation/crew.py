"""Several worker processes for one run: they attack, and this process alone writes the evidence.

Images are handed out in lanes that get smaller towards the end, so that the workers end together. A worker that is lost
costs what it had not sent; its images are handed out again in smaller lanes, until the image that ends its worker is
alone.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from robustkit.errors import UserError
from robustkit.evaluation.lanes import HOST_LOST, NOTED, Lane, LaneDone, LaneFailed, NewRows, Noted, Ready
from robustkit.evaluation.places import WorkerProcess, place_of
from robustkit.evaluation.request import MOST_WORKERS
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.runner import ModelRun
from robustkit.evaluation.worker import fingerprints, without_audit
from robustkit.evidence.rows import AnswerRecord, AttackRecord, CleanRecord, FailedRecord, Row
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch, Silent, WorkWatch

_SHARES = 4  # lanes that each worker gets of the images that are left, if they are not too small
_LEAST = 32  # images in a lane: fewer fill no batch
_MOST = 2048
_PARTS = 8  # into which the images of a lost worker are divided
_ROUNDED: Final = (
    "The workers of this run round differently, as other processors or libraries do: where an image is at the edge of "
    "its class, its verdict depends on the worker that had it."
)
_HOPELESS: Final = 20  # workers lost in a row
TRIES: Final = 3  # times that an image may end its worker


@dataclass(eq=False)
class Worker:
    """A worker process, and what it works on."""

    process: WorkerProcess
    lane: Lane | None = None
    ready: bool = False


class Crew:
    """The worker processes of a run; a context manager, because they end with it.

    Args:
        evaluation: with the request that each worker resolves again.
        store: the evidence.
        watch: is told of the progress.
    """

    def __init__(self, evaluation: Evaluation, store: Store, watch: ProgressWatch) -> None:
        assert evaluation.origin is not None, "workers need the request"
        self.evaluation, self.store, self.watch = evaluation, store, watch
        self.most = evaluation.origin.workers or MOST_WORKERS
        self.place = place_of(evaluation)
        self.fingerprints = fingerprints(evaluation)  # before any pass, as in a worker: a model may count its passes
        self.workers: list[Worker] = []
        self.lanes: deque[Lane] = deque()
        self.first: Ready | None = None  # what the first worker said
        self.finished = 0
        self.lost = 0  # workers since a lane was finished
        self.fallen: set[tuple[str, int]] = set()  # images that are broken, or wrong without an attack

    @property
    def size(self) -> int:
        """How many workers may run now."""
        return min(self.most, self.place.room())

    @property
    def stage(self) -> str:
        """What the progress display calls the work."""
        return f"{self.size} workers" if self.size > 1 else "1 worker"

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.process.stop()
        self.workers = []
        self.place.close()

    def answers(self) -> tuple[AnswerRecord, ...]:
        """What the models answer at fixed points, as a worker found out.

        Raises:
            UserError: the worker cannot start.
        """
        while self.first is None:
            useful = len(self.evaluation.classifiers) * math.ceil(len(self.evaluation.share) / _LEAST)
            self._start(0 if self.workers else min(self.size, useful))
            for worker in self._heard_of():
                self._hear(worker)
        return self.first.answers

    def run(self, evaluation: Evaluation) -> None:
        """Attack all images of all models that are not finished, but for an audit.

        Raises:
            UserError: a worker cannot start, or cannot go on for a reason that the user can mend.
        """
        self.evaluation, waiting = evaluation, 0
        for number in range(len(evaluation.classifiers)):
            left = unfinished(evaluation, number, self.store)
            self.lanes.extend(Lane(number, images) for images in _lanes(left, self.size))
            waiting += len(left)
        images = len(evaluation.classifiers) * len(evaluation.share)
        stage = self.stage
        if isinstance(self.watch, WorkWatch):
            self.watch.expect({stage: 1.0})
        self.watch.stage(stage, images, images - waiting)
        while self.lanes or any(worker.lane for worker in self.workers):
            self._hand_out()
            for worker in self._heard_of():
                self._hear(worker)

    def _hand_out(self) -> None:
        idle = [worker for worker in self.workers if worker.ready and worker.lane is None]
        missing = min(len(self.lanes) - len(idle), self.size - len(self.workers))
        self._start(missing)
        for worker in idle[: len(self.lanes)]:
            lane = self.lanes.popleft()
            manifest = self.store.manifest()
            name = self.evaluation.classifiers[lane.model].name
            rows = tuple(self.store.about(name, lane.images))
            worker.lane = lane
            noted = {key: manifest[key] for key in NOTED if key in manifest}
            worker.process.send(
                replace(lane, rows=rows, noted=noted, keep_adversarial=self.evaluation.keep_adversarial)
            )

    def _start(self, count: int) -> None:
        for _ in range(count):
            self.workers.append(Worker(self.place.start(len(self.workers))))

    def _heard_of(self) -> list[Worker]:
        """The workers that have sent something or ended; waits for the first."""
        found = self.place.heard_of([worker.process for worker in self.workers])
        return [worker for worker in self.workers if worker.process in found]

    def _hear(self, worker: Worker) -> None:
        message = worker.process.receive()
        if message is None:
            self._lost(worker, worker.process.ended())
        elif isinstance(message, Ready):
            self._check(message)
            self.first, worker.ready = message, True
        elif isinstance(message, NewRows):
            self.store.write(message.rows)
            self.fallen.update(_fallen(message.rows))
        elif isinstance(message, Noted):
            self._note(message.entries)
        elif isinstance(message, LaneFailed):
            raise UserError(message.text) if message.mendable else RuntimeError(message.text)
        elif isinstance(message, LaneDone):
            self._done(worker, message)

    def _done(self, worker: Worker, message: LaneDone) -> None:
        lane, worker.lane = worker.lane, None
        assert lane is not None, "only a lane can be done"
        seconds = self.store.manifest()["seconds"]
        self.store.set_manifest(
            seconds=seconds | {key: round(seconds.get(key, 0) + spent, 3) for key, spent in message.seconds.items()}
        )
        self.finished, self.lost = self.finished + len(lane.images), 0
        self.watch.advance(len(lane.images), 1 - len(self.fallen) / self.finished)

    def _note(self, entries: Mapping[str, Any]) -> None:
        """Add to the manifest what a worker noted about its lane."""
        manifest = self.store.manifest()
        for key, value in entries.items():
            if key == "warnings":
                new = [text for text in value if text not in manifest["warnings"]]
                self.store.set_manifest(warnings=[*manifest["warnings"], *new])
                for text in new:
                    self.watch.say(text)
            else:
                self.store.set_manifest(**{key: {**manifest.get(key, {}), **value}})

    def _check(self, message: Ready) -> None:
        if message.fingerprints != self.fingerprints:
            raise UserError(
                "A worker process loaded other weights, code or images than this one: a file has changed, or its "
                "host has another, or the model is made at random; give it fixed weights, or leave out --workers."
            )
        if self.first is not None and message.answers != self.first.answers:
            self._note({"warnings": [_ROUNDED]})

    def _lost(self, worker: Worker, end: str) -> None:
        """Hand out the images of a worker that has ended to others."""
        self.workers.remove(worker)
        own = end != HOST_LOST  # the images and the memory of a worker have nothing to do with the end of its host
        if own and not worker.ready:
            self._go_on_with_fewer(end)
        if worker.lane is None:
            return
        self.lost += own
        if self.lost >= _HOPELESS:
            raise UserError(
                f"{self.lost} worker processes ended one after the other ({end}), and none finished its "
                "images; is there enough memory? What is finished is stored; the same command goes on."
            )
        lane = worker.lane
        left = unfinished(replace(self.evaluation, only=lane.images), lane.model, self.store)
        if len(left) == 1:
            lane = Lane(lane.model, left, deaths=lane.deaths + (own and len(lane.images) == 1))
            self._try_again(lane, end)
        else:
            self.lanes.extendleft(Lane(lane.model, part) for part in _divided(left, math.ceil(len(left) / _PARTS)))

    def _go_on_with_fewer(self, end: str) -> None:
        """Start no other worker in place of one that could not start: most often there is not enough memory for it.

        Raises:
            UserError: no worker is left.
        """
        self.most = max(len(self.workers), self.size - 1)
        what = f"A worker process ended while it loaded the models and tried the first images ({end})"
        if not self.workers:
            raise UserError(f"{what}; take fewer --workers, or none.")
        self.watch.say(f"{what}; the run goes on with {self.stage}.")

    def _try_again(self, lane: Lane, end: str) -> None:
        if lane.deaths < TRIES:
            self.lanes.appendleft(lane)
            return
        name = self.evaluation.classifiers[lane.model].name
        image = lane.images[0]
        label = int(self.evaluation.data.labels[image])
        self.store.write([FailedRecord(name, image, label, lane.deaths, end)])
        self.finished += 1
        self.fallen.add((name, image))
        self.watch.say(f"{name}: image {image} ended {lane.deaths} worker processes ({end}) and has no verdict.")


@contextmanager
def one_thread(crew: Crew) -> Iterator[Crew]:
    """The crew, while this process computes with one thread as its workers do: results depend on their number."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with crew:
            yield crew
    finally:
        torch.set_num_threads(threads)


def unfinished(evaluation: Evaluation, model: int, store: Store) -> tuple[int, ...]:
    """The images of one model on which there is something left to do for a worker, in the order of work."""
    run = ModelRun(without_audit(evaluation), evaluation.classifiers[model], store, Silent())
    return run.unfinished


def _fallen(rows: Sequence[Row]) -> Iterator[tuple[str, int]]:
    for row in rows:
        if (isinstance(row, CleanRecord) and row.pred != row.label) or (isinstance(row, AttackRecord) and row.success):
            yield row.model, row.sample


def _lanes(images: Sequence[int], workers: int) -> Iterator[tuple[int, ...]]:
    """The images in lanes that get smaller."""
    while images:
        size = min(max(math.ceil(len(images) / (_SHARES * workers)), _LEAST), _MOST)
        yield tuple(images[:size])
        images = images[size:]


def _divided(images: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    for start in range(0, len(images), max(size, 1)):
        yield tuple(images[start : start + size])
