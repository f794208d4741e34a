"""How a server may be queried: how often, how fast, how long it is waited for, and where its token is."""

import os
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Protocol

from robustkit import limits
from robustkit.errors import UserError
from robustkit.host.arguments import check_fields
from robustkit.limits import shortened

_LONGEST = 3600.0


@dataclass(frozen=True)
class RemoteAccess:
    """The manners of queries to a server. None of it changes a result.

    Args:
        max_queries: requests to a server, over all runs of a folder; None for no limit.
        rate: requests per second, at most; None for no limit.
        token_variable: the environment variable with the token that the server asks for, if it asks for one.
        timeout: seconds for one request, from connecting to the last byte of the answer.
        tries: of a request that gets no answer, with twice the pause after each; 429 is obeyed and not counted.
        parallel: requests that may be under way at once.

    Raises:
        UserError: a number is out of range.
    """

    max_queries: int | None = None
    rate: float | None = None
    token_variable: str = "ROBUSTKIT_TOKEN"
    timeout: float = 30.0
    tries: int = 6
    parallel: int = 1

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_queries is not None and self.max_queries < 1:
            raise UserError("max_queries counts requests, so it must be at least 1.")
        if self.rate is not None and not 1e-4 <= self.rate <= 1e6:
            raise UserError(f"rate is a number of requests per second from 0.0001 to 1,000,000, not {self.rate:g}.")
        if not 0 < self.timeout <= _LONGEST:
            raise UserError(f"timeout is a number of seconds up to {_LONGEST:g}, not {self.timeout:g}.")
        if not 1 <= self.tries <= 100:
            raise UserError(f"tries must be 1 to 100, not {self.tries}.")
        if not 1 <= self.parallel <= limits.PARALLEL:
            raise UserError(f"parallel must be 1 to {limits.PARALLEL}, not {limits.shown(self.parallel)}.")

    def token(self) -> str | None:
        """The token; None if the variable is not set. It is never part of a text that is shown or stored.

        Raises:
            UserError: it cannot be a token.
        """
        token = os.environ.get(self.token_variable, "").strip()
        if not all("!" <= letter <= "~" for letter in token):
            raise UserError(f"The token in {shortened(self.token_variable)} must be printable ASCII without blanks.")
        return token or None


class Clock(Protocol):
    """The time, and a way to let it pass."""

    def now(self) -> float:
        """Seconds since any moment."""

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""

    def date(self) -> datetime:
        """The date, with its time zone."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def date(self) -> datetime:
        return datetime.now(timezone.utc)
