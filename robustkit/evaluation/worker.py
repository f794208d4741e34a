"""One worker process: it loads the models once, attacks the images of one lane after the other, and sends every row on.

Lanes of the same attack share its batch: it asks for the next one before its batch empties, and waits for none.
It never opens the evidence file. Its rows stand in memory until the lane is finished, because attacks read what others
before them found.
"""

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, Protocol

import torch

from robustkit.classifier.sanity_checks import checked_images
from robustkit.evaluation.answers import Probes, answers
from robustkit.evaluation.attacking import AttackPart, Sessions, attacked
from robustkit.evaluation.fingerprint import fingerprint
from robustkit.evaluation.lanes import (
    NOTED,
    Lane,
    LaneDone,
    LaneFailed,
    Message,
    More,
    NewRows,
    Noted,
    Opening,
    Ready,
    Trying,
)
from robustkit.evaluation.plan import Plan, PlannedAttack
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import Evaluation, resolve
from robustkit.evaluation.runner import OPENED_WITH, ModelRun, first_images
from robustkit.evidence.rows import AnswerRecord, Row
from robustkit.evidence.store import Store
from robustkit.host.failures import as_users_error, described_error
from robustkit.host.progress import Silent


class Coordinator(Protocol):
    """The first process of the run, as a worker sees it."""

    def send(self, message: Message, /) -> None:
        """Send it a message."""

    def poll(self) -> bool:
        """Whether a lane is here, or it is gone."""

    def recv(self) -> Lane:
        """Wait for the next lane.

        Raises:
            EOFError: it is gone.
        """


def work(connection: Coordinator, request: EvaluationRequest, opening: Opening) -> None:
    """The whole life of a worker; called in a process of its own."""
    torch.set_num_threads(1)
    try:
        evaluation = without_audit(resolve(request, may_train=False))
        if opening.singly:
            _try_singly(evaluation, opening, connection)
        connection.send(Ready(fingerprints(evaluation), _tried(evaluation, opening.avoided)))
        with closing(Bench(evaluation, connection)) as bench:
            while True:
                bench.carry_out(bench.inbox.wait())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the first process has closed the pipe
    except BaseException as error:
        mendable = as_users_error(error)
        connection.send(LaneFailed(described_error(error) if mendable is None else str(mendable), mendable is not None))


def _try_singly(evaluation: Evaluation, opening: Opening, connection: Coordinator) -> None:
    """Query each model at the first images, one after the other, and announce them: the last one ended the process."""
    first = first_images(evaluation.ids, opening.avoided)
    for each in (*evaluation.classifiers, *evaluation.surrogates):
        for image in sorted(first, key=lambda image: image in opening.suspects):
            connection.send(Trying(each.name, image))
            answers(each, checked_images(evaluation.data.batch([image])[0], (0, 1), [image]))
        connection.send(Trying(each.name, None))


def _tried(evaluation: Evaluation, avoided: Collection[int]) -> tuple[AnswerRecord, ...]:
    """What the models answer at the first images; whatever ends the process there ends it before any lane."""
    probes = Probes(evaluation.data, evaluation.ids, avoided)
    first = first_images(evaluation.ids, avoided)
    x, _ = evaluation.data.batch(first)
    for each in (*evaluation.classifiers, *evaluation.surrogates):
        images = each.input_format().moved(checked_images(x, (0, 1), first))
        with each.session(images, evaluation.seed):
            pass
    return tuple(probes.record(role, each) for role, each in evaluation.asked)


def fingerprints(evaluation: Evaluation) -> tuple[str, ...]:
    """Hashes of the models and surrogates, and of the first images, which on another host may be other files."""
    models = (fingerprint(each.model) for each in (*evaluation.classifiers, *evaluation.surrogates))
    return (*models, evaluation.data.fingerprint(evaluation.ids[:OPENED_WITH]))


def without_audit(evaluation: Evaluation) -> Evaluation:
    """The evaluation without what needs the survivors of all images."""
    columns = tuple(column for column in evaluation.plan.columns if column.audit is None)
    return replace(evaluation, plan=Plan(evaluation.plan.threats, columns))


class _Sender:
    """Sends on what a store is told."""

    def __init__(self, connection: Coordinator) -> None:
        self.connection = connection

    def written(self, rows: Sequence[Row]) -> None:
        self.connection.send(NewRows(tuple(rows)))

    def noted(self, entries: Mapping[str, Any]) -> None:
        kept = {key: value for key, value in entries.items() if key in NOTED}
        if kept:
            self.connection.send(Noted(kept))


class Inbox:
    """The lanes that a worker is handed; one at most waits here until the batch of another attack is finished."""

    def __init__(self, connection: Coordinator) -> None:
        self.connection = connection
        self._held: Lane | None = None

    def wait(self) -> Lane:
        """The next lane.

        Raises:
            EOFError: the first process is gone.
        """
        lane, self._held = self._held, None
        return self.connection.recv() if lane is None else lane

    def continuing(self, lane: Lane) -> Lane | None:
        """The next lane if it is here already and its images may join those of another one; waits for none."""
        if self._held is None and self.connection.poll():
            self._held = self.connection.recv()
        if self._held is None or not self._held.continues(lane):
            return None
        return self.wait()


class LaneRun:
    """One lane under way, with its rows in memory.

    Args:
        evaluation: the whole.
        connection: to the first process.
        lane: what it was handed.
    """

    def __init__(self, evaluation: Evaluation, connection: Coordinator, lane: Lane) -> None:
        self.connection, self.lane, self.store = connection, lane, Store(None)
        self.store.set_manifest(**{"warnings": [], **(lane.noted or {}), "seconds": {}})
        self.store.write(lane.rows)
        self.store.listener = _Sender(connection)
        part = replace(evaluation, only=lane.images, keep_adversarial=lane.keep_adversarial)
        self.run = ModelRun(part, evaluation.classifiers[lane.model], self.store, Silent())

    def end(self) -> None:
        """Tell the first process that all images are finished."""
        self.connection.send(LaneDone(self.lane.images, self.store.manifest()["seconds"]))
        self.store.close()


class LaneBatch:
    """The lanes of one attack that are under way together.

    Args:
        evaluation: the whole.
        connection: to the first process.
        inbox: of the worker.
        attack: of all lanes.
        sessions: of the model.
    """

    def __init__(
        self, evaluation: Evaluation, connection: Coordinator, inbox: Inbox, attack: PlannedAttack, sessions: Sessions
    ) -> None:
        self.evaluation, self.connection, self.inbox = evaluation, connection, inbox
        self.attack, self.sessions = attack, sessions
        self._runs: dict[AttackPart, LaneRun] = {}
        self._finished: deque[LaneRun] = deque()  # the last of them
        self._since = time.monotonic()

    def carry_out(self, first: LaneRun) -> LaneRun:
        """Attack the images of a lane, and of those that continue it; all are ended but one, which is returned."""
        for _ in attacked(self._begun(first), self._further(first.lane), self._end):
            pass
        return self._finished.pop()

    def _further(self, first: Lane) -> Iterator[AttackPart | None]:
        while True:
            lane = self.inbox.continuing(first)
            yield None if lane is None else self._begun(LaneRun(self.evaluation, self.connection, lane))

    def _begun(self, lane_run: LaneRun) -> AttackPart:
        part = lane_run.run.part(self.sessions, self.attack)
        self._runs[part] = lane_run
        self.connection.send(More())  # while these images fill the batch
        return part

    def _end(self, part: AttackPart) -> None:
        lane_run, now = self._runs.pop(part), time.monotonic()
        lane_run.run.log.add_seconds(self.attack.cell, now - self._since)
        self._since = now
        self._finished.append(lane_run)
        if len(self._finished) > 1:
            self._finished.popleft().end()


class Bench:
    """Where lanes are carried out: the sessions of the last lane's model stay open for the next.

    Args:
        evaluation: the whole.
        connection: to the first process.
    """

    def __init__(self, evaluation: Evaluation, connection: Coordinator) -> None:
        self.evaluation, self.connection, self.inbox = evaluation, connection, Inbox(connection)
        self._model: int | None = None
        self._sessions: Sessions | None = None
        self._open = ExitStack()

    def close(self) -> None:
        """Close the sessions."""
        self._open.close()

    def carry_out(self, lane: Lane) -> None:
        """Attack the images of a lane, and of those that continue it, and send their rows."""
        last = LaneRun(self.evaluation, self.connection, lane)
        sessions = self._opened(lane.model, last.run)
        if lane.attack is None:
            last.run.judge(sessions)
        else:
            attack = self.evaluation.plan.attacks[lane.attack]
            last = LaneBatch(self.evaluation, self.connection, self.inbox, attack, sessions).carry_out(last)
        # Before the last lane ends, because the run may end with it.
        last.run.look_back(sessions)
        last.end()

    def _opened(self, model: int, run: ModelRun) -> Sessions:
        if self._sessions is None or self._model != model:
            self._open.close()
            self._model, self._sessions = model, self._open.enter_context(run.opened())
        return self._sessions
