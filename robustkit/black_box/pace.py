"""How fast a server is asked, and how many requests are under way at once."""

import math

from .remote_access import Clock, RemoteAccess


class Pace:
    """The pace of requests to one server.

    Requests keep the distance of `rate`, and none is sent during a pause. They begin one at a time; each answer allows
    one more at once, up to `parallel`, and a failure only one again: a busy server is not asked by all at once when
    its pause ends.

    Args:
        access: the limits.
        clock: tells the time.
    """

    def __init__(self, access: RemoteAccess, clock: Clock) -> None:
        self.access, self.clock = access, clock
        self.at_once = 1
        self._next = -math.inf  # before this moment nothing is sent

    def left(self) -> float:
        """Seconds until a request may be sent."""
        return max(0.0, self._next - self.clock.now())

    def sent(self) -> None:
        """A request is sent now."""
        self._next = self.clock.now() + (0 if self.access.rate is None else 1 / self.access.rate)

    def answered(self) -> None:
        """A request was answered."""
        self.at_once = min(self.at_once + 1, self.access.parallel)

    def failed(self, pause: float) -> None:
        """A request failed, and nothing is sent for so many seconds."""
        self.at_once = 1
        self._next = max(self._next, self.clock.now() + pause)
