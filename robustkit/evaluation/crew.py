"""Several worker processes for one run: they attack, and this process alone writes the evidence.

A worker that is lost costs what it had not sent; its images are handed out again in smaller lanes, until the image that
ends its worker is alone.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from robustkit.errors import UserError
from robustkit.evaluation.agenda import ENOUGH, Agenda
from robustkit.evaluation.lanes import (
    GUARD,
    HOST_LOST,
    NOTED,
    Lane,
    LaneDone,
    LaneFailed,
    More,
    NewRows,
    Noted,
    Ready,
    Trying,
)
from robustkit.evaluation.places import WorkerProcess, place_of
from robustkit.evaluation.request import MOST_WORKERS
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.starting import TRIES, FirstImages
from robustkit.evaluation.worker import fingerprints, without_audit
from robustkit.evidence.rows import AnswerRecord, FailedRecord, Row
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch, WorkWatch

_ROUNDED: Final = (
    "The workers of this run round differently, as other processors or libraries do: where an image is at the "
    "decision boundary, its verdict depends on the worker that had it."
)
_HOPELESS: Final = 20  # workers lost in a row


@dataclass(eq=False)
class Worker:
    """A worker process, and what it works on."""

    process: WorkerProcess
    lane: Lane | None = None  # the images that it has
    asks: bool = False  # for more of them
    model: int | None = None  # of its last lane
    ready: bool = False
    tried: list[Trying] = field(default_factory=list)  # before it was ready, if one image after the other


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
        self.agenda: Agenda | None = None  # once the work begins
        self.first: Ready | None = None  # what the first worker said
        self.lost = 0  # workers since a lane was finished
        failed = (self.store.failed(each.name) for each in evaluation.classifiers)
        self.starting = FirstImages(image for images in failed for image in images)

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
            useful = len(self.evaluation.classifiers) * math.ceil(len(self.evaluation.share) / ENOUGH)
            useful = 1 if self.starting.opening.singly else useful
            self._start(0 if self.workers else min(self.size, useful))
            for worker in self._heard_of():
                self._hear(worker)
        return self.first.answers

    def run(self, evaluation: Evaluation) -> None:
        """Attack all images of all models that are not finished, but for an audit.

        Raises:
            UserError: a worker cannot start, or cannot go on for a reason that the user can mend.
        """
        self.evaluation = evaluation
        agenda = self.agenda = Agenda(without_audit(evaluation), self.store)
        stage = self.stage
        if isinstance(self.watch, WorkWatch):
            self.watch.expect({stage: 1.0})
        self.watch.stage(stage, agenda.size, agenda.size - agenda.left)
        while agenda.left:
            self._hand_out(agenda)
            for worker in self._heard_of():
                self._hear(worker)

    def _hand_out(self, agenda: Agenda) -> None:
        idle = [worker for worker in self.workers if worker.ready and worker.lane is None]
        size = self.size
        self._start(min(agenda.useful - len(idle), size - len(self.workers)))
        for worker in idle:
            lane = agenda.take(size, worker.model)
            if lane is None:
                break
            self._hand(worker, lane, agenda)
        for worker in self.workers:
            if worker.asks and worker.lane is not None:
                lane = agenda.more(worker.lane, size)
                if lane is not None:
                    self._hand(worker, lane, agenda)

    def _hand(self, worker: Worker, lane: Lane, agenda: Agenda) -> None:
        manifest = self.store.manifest()
        noted = {key: manifest[key] for key in NOTED if key in manifest}
        keep = self.evaluation.keep_adversarial
        worker.process.send(replace(lane, rows=agenda.known(lane), noted=noted, keep_adversarial=keep))
        before = () if worker.lane is None else worker.lane.images
        worker.lane, worker.model, worker.asks = replace(lane, images=before + lane.images), lane.model, False

    def _start(self, count: int) -> None:
        for _ in range(count):
            self.workers.append(Worker(self.place.start(len(self.workers), self.starting.opening)))

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
            self.starting.try_singly(singly=False)
        elif isinstance(message, Trying):
            worker.tried.append(message)
        elif isinstance(message, NewRows):
            self._write(worker, message.rows)
        elif isinstance(message, Noted):
            self._note(message.entries)
        elif isinstance(message, More):
            worker.asks = True
        elif isinstance(message, LaneFailed):
            raise UserError(message.text) if message.mendable else RuntimeError(message.text)
        elif isinstance(message, LaneDone):
            self._done(worker, message)

    def _done(self, worker: Worker, message: LaneDone) -> None:
        lane = worker.lane
        assert lane is not None, "only a lane can be done"
        done, finished = replace(lane, images=message.images), set(message.images)
        left = tuple(image for image in lane.images if image not in finished)
        worker.lane = replace(lane, images=left) if left else None
        assert self.agenda is not None, "lanes come from it"
        seconds = self.store.manifest()["seconds"]
        self.store.set_manifest(
            seconds=seconds | {key: round(seconds.get(key, 0) + spent, 3) for key, spent in message.seconds.items()}
        )
        before, self.lost = self.agenda.left, 0
        self.agenda.done(done)
        self._advance(before - self.agenda.left)

    def _advance(self, images: int) -> None:
        assert self.agenda is not None, "the work has begun"
        self.watch.advance(images, self.agenda.standing)

    def _write(self, worker: Worker, rows: Sequence[Row]) -> None:
        assert self.agenda is not None, "rows are those of a lane"
        assert worker.lane is not None, "rows are those of a lane"
        self.agenda.write(worker.lane.model, rows)

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
                "A worker process loaded other weights, code or images than this one: a file has changed, or "
                "differs on its host, or the model has random weights; give it fixed weights, or leave out --workers."
            )
        if self.first is not None and message.answers != self.first.answers:
            self._note({"warnings": [_ROUNDED]})

    def _lost(self, worker: Worker, end: str) -> None:
        """Hand out the images of a worker that has ended to others."""
        self.workers.remove(worker)
        own = end != HOST_LOST  # the images and the memory of a worker have nothing to do with the end of its host
        if own and not worker.ready:
            self._not_ready(worker, end)
        if worker.lane is None:
            return
        self.lost += own
        if self.lost >= _HOPELESS:
            raise UserError(
                f"{self.lost} worker processes ended one after the other ({end}), and none finished its "
                "images; is there enough memory? What is finished is stored; the same command goes on."
            )
        assert self.agenda is not None, "lanes come from it"
        before = self.agenda.left
        alone = self.agenda.lost(worker.lane, blamed=own)
        if alone is not None:
            self._try_again(self.agenda, alone, end)
        self._advance(before - self.agenda.left)

    def _not_ready(self, worker: Worker, end: str) -> None:
        """Start no other worker in place of one that could not start: most often there is not enough memory for it.

        If none is left, others try the first images of the run one after the other.

        Raises:
            UserError: it was no image that ended them.
        """
        what = f"A worker process ended while it loaded the models and tried the first images ({end})"
        at = self.starting.suspected(worker.tried)
        if at is not None:
            self._blame(at, end)
        elif self.workers:
            self.most = max(len(self.workers), self.size - 1)
            self.watch.say(f"{what}; the run goes on with {self.stage}.")
        elif self.starting.opening.singly or self.first is not None:
            fix = "give fewer --workers, or leave the option out"
            # A script that has no error of its own is most often one that each worker runs again.
            raise UserError(f"{what}; {GUARD}; else {fix}." if end == "status 1" else f"{what}; {fix}.")
        else:
            self.starting.try_singly(singly=True)

    def _blame(self, at: Trying, end: str) -> None:
        """One of the first images ended a worker; the third time it is an error, of all models if of a surrogate."""
        if at.image is None or not self.starting.blame(at):
            return
        names = [each.name for each in self.evaluation.classifiers]
        for name in [at.model] if at.model in names else names:
            self.store.write([self._failed(name, at.image, TRIES, end)])

    def _try_again(self, agenda: Agenda, lane: Lane, end: str) -> None:
        if lane.deaths < TRIES:
            agenda.again(lane)
            return
        name = self.evaluation.classifiers[lane.model].name
        agenda.failed(lane, self._failed(name, lane.images[0], lane.deaths, end))

    def _failed(self, name: str, image: int, deaths: int, end: str) -> FailedRecord:
        self.watch.say(f"{name}: image {image} ended {deaths} worker processes ({end}) and has no verdict.")
        return FailedRecord(name, image, int(self.evaluation.data.labels[image]), deaths, end)


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
