"""One worker process: it loads the models once, attacks the images of one lane after the other, and sends every row on.

It never opens the evidence file. Its rows stand in memory until the lane is finished, because attacks read what others
before them found.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, Protocol

import torch

from robustkit.classifier.sanity_checks import checked_images
from robustkit.evaluation.answers import Probes
from robustkit.evaluation.fingerprint import fingerprint
from robustkit.evaluation.lanes import NOTED, Lane, LaneDone, LaneFailed, Message, NewRows, Noted, Ready
from robustkit.evaluation.plan import Plan
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import Evaluation, resolve
from robustkit.evaluation.runner import OPENED_WITH, ModelRun, Sessions
from robustkit.evidence.rows import AnswerRecord, Row
from robustkit.evidence.store import Store
from robustkit.host.failures import as_users_error, described_error
from robustkit.host.progress import Silent


class Coordinator(Protocol):
    """The first process of the run, as a worker sees it."""

    def send(self, message: Message, /) -> None:
        """Send it a message."""

    def recv(self) -> Lane:
        """Wait for the next lane.

        Raises:
            EOFError: it is gone.
        """


def work(connection: Coordinator, request: EvaluationRequest) -> None:
    """The whole life of a worker; called in a process of its own."""
    torch.set_num_threads(1)
    try:
        evaluation = without_audit(resolve(request, may_train=False))
        connection.send(Ready(fingerprints(evaluation), _tried(evaluation)))
        with closing(Bench(evaluation, connection)) as bench:
            while True:
                bench.carry_out(connection.recv())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # the first process has closed the pipe
    except BaseException as error:
        mendable = as_users_error(error)
        connection.send(LaneFailed(described_error(error) if mendable is None else str(mendable), mendable is not None))


def _tried(evaluation: Evaluation) -> tuple[AnswerRecord, ...]:
    """What the models answer at the first images; whatever ends the process there ends it before any lane."""
    probes = Probes(evaluation.data, evaluation.ids)
    first = evaluation.ids[:OPENED_WITH]
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


class Bench:
    """Where lanes are carried out: the sessions of the last lane's model stay open for the next.

    Args:
        evaluation: the whole.
        connection: to the first process.
    """

    def __init__(self, evaluation: Evaluation, connection: Coordinator) -> None:
        self.evaluation, self.connection = evaluation, connection
        self._model: int | None = None
        self._sessions: Sessions | None = None
        self._open = ExitStack()

    def close(self) -> None:
        """Close the sessions."""
        self._open.close()

    def carry_out(self, lane: Lane) -> None:
        """Attack the images of a lane and send its rows."""
        store = Store(None)
        try:
            store.set_manifest(**{"warnings": [], **(lane.noted or {}), "seconds": {}})
            store.write(lane.rows)
            store.listener = _Sender(self.connection)
            part = replace(self.evaluation, only=lane.images, keep_adversarial=lane.keep_adversarial)
            run = ModelRun(part, self.evaluation.classifiers[lane.model], store, Silent())
            sessions = self._opened(lane.model, run)
            if lane.attack is None:
                run.judge(sessions)
            else:
                run.attack(sessions, self.evaluation.plan.attacks[lane.attack])
            run.look_back(sessions)
            self.connection.send(LaneDone(store.manifest()["seconds"]))
        finally:
            store.close()

    def _opened(self, model: int, run: ModelRun) -> Sessions:
        if self._sessions is None or self._model != model:
            self._open.close()
            self._model, self._sessions = model, self._open.enter_context(run.opened())
        return self._sessions
