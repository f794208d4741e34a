"""What is known about one server: the requests to it and its answers, all of one form."""

from robustkit.errors import UserError

from .query_ledger import LOST, QueryLedger
from .reply import Reply, ReplyFormat


class QueriesSpentError(UserError):
    """The requests that were allowed are spent: the run stops with what it has."""


class ServerRecord:
    """The requests to a server and its answers.

    Args:
        url: of the server.
        form: of its answers.
        most: requests that are allowed; None for no limit.
    """

    def __init__(self, url: str, form: ReplyFormat, most: int | None) -> None:
        self.url, self.form, self.most = url, form, most
        self.ledger = QueryLedger()
        self.first: Reply | None = None  # whose form all others must have

    @property
    def requests(self) -> int:
        """How many requests were sent."""
        return self.ledger.requests(self.url)

    @property
    def answered(self) -> int:
        """How many pictures it has answered."""
        return self.ledger.answered(self.url)

    def known(self, key: bytes) -> Reply | None:
        """The answer about a picture, if there is one.

        Raises:
            UserError: it has another form than the first one.
        """
        reply = self.ledger.find(self.url, key)
        return None if reply is None else self._of_one_form(reply)

    def require_left(self, coming: int) -> None:
        """Check that another request is allowed.

        Args:
            coming: requests that are allowed already and not yet written down.

        Raises:
            QueriesSpentError: it is not.
        """
        if self.most is not None and self.requests + coming >= self.most:
            kept = ", and the results so far are kept; the same command with more --max-queries goes on."
            rest = "; allow more with --max-queries." if self.ledger.folder is None else kept
            raise QueriesSpentError(f"The {self.most:,} requests to {self.form.name} are used up{rest}")

    def begin(self, key: bytes) -> int:
        """Write down a request that is about to be sent; returns its number."""
        return self.ledger.begin(self.url, key)

    def end(self, request: int, status: int | None) -> None:
        """Write down how a request ended: with a status, or without an answer."""
        self.ledger.end(request, LOST if status is None else status)

    def keep(self, key: bytes, content: bytes) -> Reply:
        """Read an answer and write it down.

        Raises:
            UserError: it cannot be read, or has another form than the first one.
        """
        reply = self.form.reply(content)
        self.ledger.keep(self.url, key, reply)
        return self._of_one_form(reply)

    def _of_one_form(self, reply: Reply) -> Reply:
        first = self.first = self.first or reply
        if (reply.gives, len(reply.scores)) != (first.gives, len(first.scores)):
            raise UserError(
                f"{self.form.name} answered with {len(first.scores)} {first.gives} first and with "
                f"{len(reply.scores)} {reply.gives} later; it must answer in one form."
            )
        return reply
