"""A server that is asked politely: not faster than it may be, again after a pause where it fails, never twice for one
picture, and never more often than was allowed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from robustkit.errors import UserError

from .address import ServerAddress
from .delivery import Body, Delivery
from .lines import Lines
from .pace import Pace
from .record import ServerRecord
from .remote_access import Clock, RemoteAccess
from .reply import Reply, ReplyFormat


class UnsentPicture(NamedTuple):
    """A picture that a server is asked about."""

    key: bytes
    content: Callable[[], tuple[bytes, str]]  # makes what is sent, and its media type


class Server:
    """Asks a server about pictures, and remembers what it answered.

    Args:
        address: of the server.
        access: how it may be queried.
        form: of its answers.
        clock: tells the time, and waits.
    """

    def __init__(self, address: ServerAddress, access: RemoteAccess, form: ReplyFormat, clock: Clock) -> None:
        self.address, self.access = address, access
        self.record = ServerRecord(address.url, form, access.max_queries)
        self._lines = Lines(address, access.timeout, clock, access.parallel)
        self._pace = Pace(access, clock)

    def ask(self, pictures: Sequence[UnsentPicture]) -> list[Reply]:
        """The answers about pictures, of which only those are sent that are not known.

        Raises:
            QueriesSpentError: one is not known, and no request is left.
            UserError: the server gives no answer.
        """
        replies: dict[bytes, Reply] = {}
        unknown: dict[bytes, Callable[[], Body]] = {}
        for each in pictures:
            known = self.record.known(each.key)
            if known is None:
                unknown[each.key] = partial(self._body, each)
            else:
                replies[each.key] = known
        replies |= Delivery(unknown, self.access, self._lines, self._pace, self.record).replies()
        return [replies[each.key] for each in pictures]

    def close(self) -> None:
        """Close the connections."""
        self._lines.close()

    def _body(self, picture: UnsentPicture) -> Body:
        """What is sent about a picture.

        Raises:
            UserError: it would show the token to others.
        """
        content, kind = picture.content()
        headers = {"Content-Type": kind, "Accept": "application/json", "Accept-Encoding": "identity"}
        token = self.access.token()
        if token is None:
            return Body(content, headers)
        if not self.address.private:
            raise UserError(
                f"{self.address.place} is not an https:// address, so everybody on the way could read the token in "
                f"{self.access.token_variable}; take https://, or unset the variable."
            )
        return Body(content, {**headers, "Authorization": f"Bearer {token}"})
