"""Ctrl-C from the first moment to the last, also while libraries are imported."""

import signal
from types import FrameType

_SIGNALS: list[int] = []


def watch_interrupts() -> None:
    """From now on `interrupted` says whether Ctrl-C was pressed; a process that ignores Ctrl-C goes on ignoring it."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def interrupted() -> bool:
    """Whether Ctrl-C was pressed: libraries turn it into errors of other kinds when it hits their import."""
    return bool(_SIGNALS)


def ignore_interrupts() -> None:
    """From now on Ctrl-C does nothing: the work is done or given up, and Python is about to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _SIGNALS.append(number)
    raise KeyboardInterrupt
