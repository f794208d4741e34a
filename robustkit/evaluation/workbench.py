"""Where a worker attacks the images that it is handed, and sends every row on.

Lanes of the same attack share its batch: it asks for the next one before its batch empties, and waits for none. The
rows of a lane stand in memory until it is finished, because attacks read what others before them found.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Protocol

from robustkit.evaluation.attacking import AttackPart, Sessions, attacked
from robustkit.evaluation.lanes import NOTED, Lane, LaneDone, Message, More, NewRows, Noted
from robustkit.evaluation.plan import PlannedAttack
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.runner import ModelRun
from robustkit.evidence.rows import Row
from robustkit.evidence.store import Store
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
