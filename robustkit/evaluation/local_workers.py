"""Worker processes of this machine, each at the other end of a pipe."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context, get_start_method, parent_process, set_start_method
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import torch

from robustkit.evaluation.lanes import Lane, Message, Opening, sending
from robustkit.evaluation.request import MOST_WORKERS, EvaluationRequest
from robustkit.evaluation.worker import work


class LocalWorker:
    """A process with the pipe to it.

    Raises:
        UserError: the evaluation cannot be sent to another process.
    """

    def __init__(self, request: EvaluationRequest, opening: Opening) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work_and_end_with_parent, args=(theirs, request, opening), daemon=True)
        with sending("workers"), _interrupts_ignored(), _start_method_kept():
            process.start()
        theirs.close()
        self.process: SpawnProcess = process
        self.connection: Connection = ours

    def send(self, lane: Lane) -> None:
        """Hand a lane to the worker; one that is lost gets none, which `receive` notices next."""
        with suppress(OSError):
            self.connection.send(lane)

    def receive(self) -> Message | None:
        """What the worker sent next, or None if it has ended."""
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError):
            return None
        return message

    def ended(self) -> str:
        """How the process ended: the name of a signal, or its status; waits for it."""
        self.process.join()
        self.connection.close()
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"status {code}"
        with suppress(ValueError):
            return signal.Signals(-code).name
        return f"signal {-code}"

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.connection.close()


class LocalWorkers:
    """Starts worker processes on this machine.

    Args:
        request: what each of them resolves.
    """

    def __init__(self, request: EvaluationRequest) -> None:
        self.request = request

    def room(self) -> int:
        """How many workers may run: as many as were asked for."""
        return MOST_WORKERS

    def start(self, number: int, opening: Opening) -> LocalWorker:
        """A new worker process, with a GPU of its own where there are several."""
        several = self.request.device in ("auto", "cuda") and self.request.shard is None
        count = torch.cuda.device_count() if several else 0
        request = replace(self.request, device=f"cuda:{number % count}") if count else self.request
        return LocalWorker(request, opening)

    def heard_of(self, workers: Sequence[LocalWorker]) -> list[LocalWorker]:
        """The workers that have sent something or ended; waits for the first."""
        found = wait([worker.connection for worker in workers])
        return [worker for worker in workers if worker.connection in found]

    def close(self) -> None:
        """Nothing is left when the workers are stopped."""


@contextmanager
def _start_method_kept() -> Iterator[None]:
    """Starting a process chooses how the caller's own processes are started, if nothing has chosen it."""
    before: str | None = get_start_method(allow_none=True)
    try:
        yield
    finally:
        if before is None:
            set_start_method(None, force=True)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """New processes ignore Ctrl-C from their first moment: they inherit it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _work_and_end_with_parent(connection: Connection, request: EvaluationRequest, opening: Opening) -> None:
    """Work until the first process closes the pipe, or ends in whatever way."""
    # Ctrl-C reaches all processes of a terminal; the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work(connection, request, opening)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "a worker has a parent"
    wait([parent.sentinel])
    os._exit(1)
