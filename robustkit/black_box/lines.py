"""Connections to one server, each with a thread that waits for it, so that several requests are under way at once.

Threads only connect, send and receive. Everything else, such as the ledger of requests, stays in the caller's thread.
"""

import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import NamedTuple

from .address import ServerAddress
from .remote_access import Clock
from .wire import Exchange, Wire

Job = Callable[[Wire], "Exchange | None"]
_LOOK = 1.0  # seconds: on Windows Ctrl-C is noticed between two waits only


class Finished(NamedTuple):
    """The end of a job."""

    line: "Line"
    exchange: Exchange | None
    error: BaseException | None


class Line:
    """One connection.

    Args:
        wire: the connection itself.
        finished: gets the end of each job.
        threaded: whether jobs run in a thread; otherwise they run at once.
    """

    def __init__(self, wire: Wire, finished: "SimpleQueue[Finished]", *, threaded: bool) -> None:
        self.wire, self._finished = wire, finished
        self._jobs: SimpleQueue[Callable[[], Finished] | None] | None = SimpleQueue() if threaded else None
        if self._jobs is not None:
            Thread(target=_work, args=(self._jobs, finished), name="request", daemon=True).start()
            weakref.finalize(self, self._jobs.put, None)

    def run(self, job: Job) -> None:
        """Begin a job."""
        if self._jobs is not None:
            self._jobs.put(lambda: self._done(job, BaseException))
        else:
            self._finished.put(self._done(job, Exception))

    def _done(self, job: Job, caught: type[BaseException]) -> Finished:
        try:
            return Finished(self, job(self.wire), None)
        except caught as error:
            return Finished(self, None, error)


class Lines:
    """As many connections as requests may be under way, each opened when it is needed.

    Args:
        address: of the server.
        timeout: seconds for each request with its answer.
        clock: tells the time.
        most: connections.
    """

    def __init__(self, address: ServerAddress, timeout: float, clock: Clock, most: int) -> None:
        self.most = most
        self._of = (address, timeout, clock)
        self._free: list[Line] = []
        self._busy: set[Line] = set()
        self._finished: SimpleQueue[Finished] = SimpleQueue()

    @property
    def busy(self) -> int:
        """How many connections are in use."""
        return len(self._busy)

    def take(self) -> Line:
        """A connection that nobody uses, until `give` or `close`."""
        line = self._free.pop() if self._free else Line(Wire(*self._of), self._finished, threaded=self.most > 1)
        self._busy.add(line)
        return line

    def give(self, line: Line) -> None:
        """Put a connection back."""
        self._busy.discard(line)
        self._free.append(line)

    def next(self, seconds: float | None) -> Finished | None:
        """The end of a job; None if there is none within so many seconds, or within a moment for None."""
        try:
            return self._finished.get(timeout=_LOOK if seconds is None else max(0.0, min(seconds, _LOOK)))
        except Empty:
            return None

    def close(self) -> None:
        """Close all connections; what is under way on them is given up."""
        for line in self._busy:
            line.wire.abort()
        for line in self._free:
            line.wire.close()
        self._free, self._busy = [], set()
        self._finished = SimpleQueue()  # of the lines to come: threads that were given up still use the old one


def _work(jobs: "SimpleQueue[Callable[[], Finished] | None]", finished: "SimpleQueue[Finished]") -> None:
    while (job := jobs.get()) is not None:
        finished.put(job())
        del job  # it holds the line, whose end ends this thread
