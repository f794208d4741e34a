"""Callbacks for the progress of a run."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol, runtime_checkable


class ProgressWatch(Protocol):
    """Gets the progress of a run, for example to draw bars."""

    def stage(self, text: str, total: int, done: int) -> None:
        """A stage of `total` images begins; `done` of them were finished in an earlier run."""

    def advance(self, images: int, robust: float) -> None:
        """`images` more are finished; `robust` is the robust accuracy so far."""

    def say(self, text: str) -> None:
        """A message for the user."""

    def training(self, text: str, share: float) -> None:
        """A training has done this share of its steps, from 0 to 1."""


@runtime_checkable
class WorkWatch(Protocol):
    """A watch that can show the progress of a whole job."""

    def expect(self, stages: Mapping[str, float]) -> None:
        """These stages come, in this order, each with its expected work in any unit."""


class Silent:
    """Ignores all progress."""

    def stage(self, text: str, total: int, done: int) -> None: ...
    def advance(self, images: int, robust: float) -> None: ...
    def say(self, text: str) -> None: ...
    def training(self, text: str, share: float) -> None: ...


@contextmanager
def shown_progress(progress: bool | None) -> Iterator[ProgressWatch]:
    """A watch for calls from Python: bars on standard error if `progress`, or if it is None and that is a terminal.

    A notebook is no terminal. Where a progress display of the caller is on the screen already, there is no second one.
    """
    wanted = progress if progress is not None else sys.stderr is not None and sys.stderr.isatty()
    if not wanted:
        yield Silent()
        return
    from rich.errors import LiveError

    from robustkit.host.bars import Bars

    with ExitStack() as stack:
        watch: ProgressWatch = Silent()
        with suppress(LiveError):
            watch = stack.enter_context(Bars(quiet=False))
        yield watch
