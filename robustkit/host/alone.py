"""One thread at a time: the modes of a model and the random states belong to the whole process."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_LOCKS = {"process": threading.RLock()}


@contextmanager
def alone() -> Iterator[None]:
    """A context that one thread of the process enters at a time, and may enter again; others wait."""
    with _LOCKS["process"]:
        yield


def is_free() -> bool:
    """Whether this thread would not have to wait."""
    lock = _LOCKS["process"]
    free = lock.acquire(blocking=False)
    if free:
        lock.release()
    return free


def _renewed() -> None:
    _LOCKS["process"] = threading.RLock()


# A child that was forked while another thread was inside would wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renewed)
