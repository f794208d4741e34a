"""When to stop waiting for company: what is computed for many at once should not wait for ever."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_COSTS = 20  # what is slow is not computed more often than costs a share of 1 / 20 of its time


class Patience:
    """A clock for things that wait to be computed together.

    Args:
        seconds: that they wait, or longer where computing takes longer.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._since: float | None = None  # when the first of them came
        self._took = deque([0.0], maxlen=2)  # seconds of the last times; one may have compared batch sizes

    def wait(self) -> None:
        """Note that something waits."""
        self._since = time.monotonic() if self._since is None else self._since

    @property
    def over(self) -> bool:
        """Whether something has waited so long that computing it now costs little of the time since."""
        if self._since is None:
            return False
        return time.monotonic() - self._since > max(self.seconds, _COSTS * min(self._took))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around the computation of all that waits."""
        start, self._since = time.monotonic(), None
        yield
        self._took.append(time.monotonic() - start)
