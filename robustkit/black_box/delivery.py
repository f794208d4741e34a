"""Pictures on their way to a server: several at once, again after a pause where it fails, never one twice.

The order of the pictures decides who is sent first, also among those that are tried again. So the requests that were
allowed are spent on the first pictures, however many are under way at once.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

from robustkit.errors import UserError

from .lines import Finished, Line, Lines
from .pace import Pace
from .record import ServerRecord
from .remote_access import RemoteAccess
from .reply import Reply
from .statuses import passing_reason, pause_asked
from .wire import Exchange, LostError, UnreachableError, Wire

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0  # seconds; each pause is twice the one before
_PATIENCE = 3600.0  # seconds that a server may ask to be left alone, for one picture
_ASKED = 100  # times that it may ask for that: each costs a request


class Body(NamedTuple):
    """What is sent about one picture."""

    content: bytes
    headers: dict[str, str]


@dataclass(order=True)
class _Parcel:
    """A picture without an answer."""

    order: int
    key: bytes = field(compare=False)
    make: Callable[[], Body] = field(compare=False)
    body: Body | None = field(default=None, compare=False)
    tries: int = field(default=0, compare=False)
    failures: int = field(default=0, compare=False)  # tries after which the server did not say how long to wait
    waited: float = field(default=0.0, compare=False)  # seconds
    request: int | None = field(default=None, compare=False)  # its number while it is under way


class Delivery:
    """Pictures that are sent until all are answered.

    Args:
        pictures: by their keys, what makes the body of each.
        access: how the server may be queried.
        lines: the connections to it.
        pace: of the requests.
        record: where requests and answers are written down.
    """

    def __init__(
        self, pictures: Mapping[bytes, Callable[[], Body]], access: RemoteAccess, lines: Lines, pace: Pace,
        record: ServerRecord,
    ) -> None:  # fmt: skip
        self.access, self.lines, self.pace, self.record = access, lines, pace, record
        self._waiting = [_Parcel(order, *each) for order, each in enumerate(pictures.items())]
        self._sent: dict[Line, _Parcel] = {}
        self._replies: dict[bytes, Reply] = {}
        self._failed: dict[int, BaseException] = {}  # what ends the delivery, by the order of the picture

    def replies(self) -> dict[bytes, Reply]:
        """The answers by key.

        After an error only pictures before that one are sent, as if they were sent one after the other; what is under
        way is waited for, because it is counted.

        Raises:
            QueriesSpentError: no request is left.
            UserError: the server gives no answer.
        """
        try:
            while self._sent or self._may_send:
                self._step()
        except BaseException:  # Ctrl-C too: what is under way is lost
            for request in [each.request for each in self._sent.values() if each.request is not None]:
                self.record.end(request, None)
            self.lines.close()
            raise
        if self._failed:
            raise self._failed[min(self._failed)]
        return self._replies

    @property
    def _may_send(self) -> bool:
        return bool(self._waiting) and self._is_wanted(self._waiting[0])

    def _is_wanted(self, parcel: _Parcel) -> bool:
        """Whether no picture before this one has failed."""
        return all(parcel.order < order for order in self._failed)

    def _step(self) -> None:
        """Send one picture, or wait for what happens next."""
        left = self.pace.left() if self._may_send and len(self._sent) < self.pace.at_once else None
        if left == 0:
            self._send(heapq.heappop(self._waiting))
        elif not self._sent:
            assert left is not None
            self.pace.clock.sleep(left)
        else:
            finished = self.lines.next(left)
            if finished is not None:
                self._finish(finished)

    def _send(self, parcel: _Parcel) -> None:
        try:
            self.record.require_left(sum(each.request is None for each in self._sent.values()))
            parcel.body = parcel.body or parcel.make()
        except Exception as error:  # the user's function makes the body
            self._failed[parcel.order] = error
            return
        self.pace.sent()
        parcel.tries += 1
        line = self.lines.take()
        self._sent[line] = parcel
        line.run(Wire.connect)

    def _finish(self, finished: Finished) -> None:
        """A connection is there, or an answer, or neither."""
        line, parcel = finished.line, self._sent[finished.line]
        if finished.error is None and parcel.request is None and self._is_wanted(parcel):
            body = parcel.body
            assert body is not None
            parcel.request = self.record.begin(parcel.key)
            line.run(lambda wire: wire.post(body.content, body.headers))
            return
        del self._sent[line]
        self.lines.give(line)
        if parcel.request is not None:
            self.record.end(parcel.request, None if finished.exchange is None else finished.exchange.status)
            parcel.request = None
        try:
            self._judge(parcel, finished.exchange, finished.error)
        except Exception as error:
            self._failed[parcel.order] = error

    def _judge(self, parcel: _Parcel, exchange: Exchange | None, error: BaseException | None) -> None:
        """Keep an answer, or try again later.

        Raises:
            UserError: another try would not help.
        """
        if isinstance(error, (UnreachableError, LostError)):
            self._again(parcel, str(error), None)
        elif error is not None:
            raise error
        elif exchange is None:  # the connection is there, and a picture before this one has failed
            return
        elif exchange.status == HTTPStatus.OK:
            self._replies[parcel.key] = self.record.keep(parcel.key, exchange.body)
            self.pace.answered()
        else:
            reason = passing_reason(exchange.status, self.record.form.name, self.access)
            self._again(parcel, reason, pause_asked(exchange, self.pace.clock))

    def _again(self, parcel: _Parcel, reason: str, asked: float | None) -> None:
        """Try again after a pause, the server's own if it names one.

        Raises:
            UserError: it was tried often enough.
        """
        name = self.record.form.name
        parcel.failures += asked is None
        if parcel.failures >= self.access.tries or parcel.tries >= _ASKED:
            raise UserError(
                f"{name} gave no answer in {parcel.tries} {'try' if parcel.tries == 1 else 'tries'}: {reason}. "
                "Check the server; the same command goes on where it stopped."
            )
        pause = min(_FIRST_PAUSE * 2 ** (parcel.failures - 1), _LONGEST_PAUSE) if asked is None else asked
        parcel.waited += pause
        if parcel.waited > _PATIENCE:
            raise UserError(
                f"{name} asks for a pause of {pause:,.0f} seconds; give the same command again after that, "
                "it goes on where it stopped."
            )
        self.pace.failed(pause)
        heapq.heappush(self._waiting, parcel)
