"""A server that is asked politely: not faster than it may be, again after a pause where it fails, never twice for one
picture, and never more often than was allowed."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import NamedTuple

from robustkit.errors import UserError

from .address import ServerAddress
from .query_ledger import LOST, QueryLedger
from .remote_access import Clock, RemoteAccess
from .reply import Reply, ReplyFormat
from .wire import Exchange, LostError, UnreachableError, Wire

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds; each pause is twice the one before
_PATIENCE = 3600.0  # seconds that a server may ask to be left alone, for one picture
_ASKED = 100  # times that it may ask for that: each costs a request
_AGAIN = (408, 425, 500, 502, 503, 504)  # statuses that may pass


class QueriesSpentError(UserError):
    """The requests that were allowed are spent: the run stops with what it has."""


class Body(NamedTuple):
    """What is sent about one picture."""

    content: bytes
    kind: str  # its media type


class Server:
    """Asks a server about pictures, and remembers what it said.

    Args:
        address: of the server.
        access: how it may be queried.
        form: of its answers.
        clock: tells the time, and waits.
    """

    def __init__(self, address: ServerAddress, access: RemoteAccess, form: ReplyFormat, clock: Clock) -> None:
        self.address, self.access, self.form, self.clock = address, access, form, clock
        self.name, self.ledger = form.name, QueryLedger()
        self._wire = Wire(address, access.timeout, clock)
        self._next = -math.inf  # before this moment nothing is sent

    def ask(self, key: bytes, body: Callable[[], Body]) -> Reply:
        """The answer about a picture, which is sent only if it is not known.

        Args:
            key: of the picture.
            body: makes what is sent.

        Raises:
            QueriesSpentError: it is not known, and no request is left.
            UserError: the server gives no answer.
        """
        known = self.ledger.find(self.address.url, key)
        if known is not None:
            return known
        exchange = self._answered(key, body())
        reply = self.form.reply(exchange.body)
        self.ledger.keep(self.address.url, key, reply)
        return reply

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self.ledger.requests(self.address.url)

    @property
    def answered(self) -> int:
        """How many pictures it has answered."""
        return self.ledger.answered(self.address.url)

    def close(self) -> None:
        """Close the connection."""
        self._wire.close()

    def _answered(self, key: bytes, body: Body) -> Exchange:
        """The first answer with status 200."""
        headers, number, failures, waited = self._headers(body), 0, 0, 0.0
        while True:
            number += 1
            try:
                exchange = self._sent(key, body, headers)
            except (UnreachableError, LostError) as error:
                reason, asked = str(error), None
            else:
                if exchange.status == HTTPStatus.OK:
                    return exchange
                reason, asked = self._reason(exchange), self._pause_asked(exchange)
            failures += asked is None
            if failures >= self.access.tries or number >= _ASKED:
                raise UserError(
                    f"{self.name} gave no answer in {number} {'try' if number == 1 else 'tries'}: {reason}. "
                    "Check the server; the same command goes on where it stopped."
                )
            if asked is None:
                asked = min(_FIRST_PAUSE * 2 ** (failures - 1), _LONGEST_PAUSE)
            waited += asked
            if waited > _PATIENCE:
                raise UserError(
                    f"{self.name} asks to be left alone for {asked:,.0f} seconds; give the same command again after "
                    "that, it goes on where it stopped."
                )
            self._next = max(self._next, self.clock.now() + asked)

    def _sent(self, key: bytes, body: Body, headers: Mapping[str, str]) -> Exchange:
        """One request, written down before it is sent."""
        if self.access.max_queries is not None and self.requests >= self.access.max_queries:
            raise QueriesSpentError(
                f"The {self.access.max_queries:,} requests to {self.name} are spent, and the results so far are kept; "
                "the same command with more --max-queries goes on."
            )
        self._wait()
        self._wire.connect()
        number = self.ledger.begin(self.address.url, key)
        outcome = LOST
        try:
            exchange = self._wire.post(body.content, headers)
            outcome = exchange.status
        finally:
            self.ledger.end(number, outcome)
        return exchange

    def _wait(self) -> None:
        left = self._next - self.clock.now()
        if left > 0:
            self.clock.sleep(left)
        self._next = self.clock.now() + (0 if self.access.rate is None else 1 / self.access.rate)

    def _headers(self, body: Body) -> dict[str, str]:
        headers = {"Content-Type": body.kind, "Accept": "application/json", "Accept-Encoding": "identity"}
        token = self.access.token()
        if token is None:
            return headers
        if not self.address.private:
            raise UserError(
                f"{self.address.place} is no https:// address, so everybody on the way could read the token in "
                f"{self.access.token_variable}; take https://, or unset the variable."
            )
        return {**headers, "Authorization": f"Bearer {token}"}

    def _reason(self, exchange: Exchange) -> str:
        """What a status says, if the same request may be answered later.

        Raises:
            UserError: it will not be.
        """
        status = exchange.status
        if status == HTTPStatus.TOO_MANY_REQUESTS or status in _AGAIN:
            return _said(status)
        if 300 <= status < 400:
            raise UserError(
                f"{self.name} sends requests on to another address ({_said(status)}); pictures and tokens go only "
                "where you say, so give the final address."
            )
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise UserError(
                f"{self.name} refuses access ({_said(status)}); put its token into the environment variable "
                f"{self.access.token_variable}."
            )
        raise UserError(f"{self.name} answers with {_said(status)}; check the address and what the server takes.")

    def _pause_asked(self, exchange: Exchange) -> float | None:
        """Seconds that the server asks to wait, in seconds or as a date; None if it does not say."""
        text = (exchange.retry_after or "").strip()
        seconds = None
        if text.isascii() and text.isdigit():
            seconds = float(text[:9])
        elif text:
            with suppress(ValueError, TypeError, OverflowError):
                seconds = (parsedate_to_datetime(text) - self.clock.date()).total_seconds()
        return None if seconds is None else max(1.0, seconds)


def _said(status: int) -> str:
    """A status in the words of the standard: the server's own may be anything."""
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return f"status {status}"
