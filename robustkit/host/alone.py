"""One thread at a time: the modes of a model and the random states belong to the whole process."""

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOOK = 1.0  # seconds after which a waiting thread looks whether the other has ended
_LONG = 60  # looks after which it says that it waits


class _Turn:
    """A lock that its thread may take again, and that is free again if that thread has ended."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Free, whoever had it."""
        self.changed = threading.Condition()
        self.owner: threading.Thread | None = None
        self.depth = 0

    def is_free(self) -> bool:
        """Whether this thread would not have to wait."""
        return self.owner in (None, threading.current_thread()) or not self.owner.is_alive()

    def take(self) -> None:
        """Wait until it is free, and take it."""
        looks = 0
        with self.changed:
            while not self.is_free():
                self.changed.wait(_LOOK)
                looks += 1
                if looks == _LONG:
                    warnings.warn(
                        "Another thread of this process is using robustkit, and this one waits for it. If it waits for "
                        "this one, such as for a model's answer, serve the model from another process.",
                        RuntimeWarning, stacklevel=2,
                    )  # fmt: skip
            if self.owner is not threading.current_thread():
                self.owner, self.depth = threading.current_thread(), 0
            self.depth += 1

    def give_back(self) -> None:
        """Whichever thread ends the context: a generator may be closed by another one."""
        with self.changed:
            self.depth -= 1
            if self.depth <= 0:
                self.owner = None
                self.changed.notify()


_TURN = _Turn()


@contextmanager
def alone() -> Iterator[None]:
    """A context that one thread of the process enters at a time, and may enter again; others wait."""
    _TURN.take()
    try:
        yield
    finally:
        _TURN.give_back()


def is_free() -> bool:
    """Whether this thread would not have to wait."""
    return _TURN.is_free()


# A child that was forked while another thread was inside would wait for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_TURN.renew)
