"""A server as a classifier: it gets each image as an 8-bit PNG and answers with JSON, scores or a label."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from robustkit.primitives.reachable_code import code_of

from .address import server_address
from .model import BlackBox, Gives, Shared, check_classes
from .picture import SentPicture, pictures_of
from .query_ledger import QueryLedger
from .remote_access import Clock, RemoteAccess, SystemClock
from .reply import Read, ReplyFormat
from .server import Server, UnsentPicture

Write = Callable[[bytes], tuple[bytes, str]]
_ASKED_AGAIN = 2  # pictures, to see whether the server repeats its answers


class HttpModel(BlackBox):
    """A classifier behind a URL.

    Each image is sent by POST as a PNG file with 256 levels. The answer is JSON: `{"scores": [...]}` or
    `{"logits": [...]}`, `{"probabilities": [...]}`, or `{"label": 3}`; scores or a label may also stand alone.

    Args:
        url: `http://` or `https://`.
        num_classes: K; None takes as many as there are scores in the first answer.
        fewest_classes: K is at least so many; K of labels where `num_classes` is not given.
        name: what reports call it; by default after the URL.
        access: limits and waiting times.
        read: takes the JSON of another form, and returns scores or a label.
        write: takes the PNG, and returns what is sent with its media type.
        class_names: that a label may be one of.
        clock: tells the time.

    Raises:
        UserError: the URL is none, or an argument is out of range.
    """

    metered = True

    def __init__(
        self,
        url: str,
        *,
        num_classes: int | None = None,
        fewest_classes: int = 2,
        name: str = "",
        access: RemoteAccess | None = None,
        read: Read | None = None,
        write: Write | None = None,
        class_names: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        check_classes(num_classes or fewest_classes)
        address = server_address(url)
        name = name or _name(address.place)
        super().__init__(self._never, num_classes=num_classes, name=name)
        self.url = url  # a setting like others: part of a run's identity
        self.source = address.place
        self.code = hashlib.sha256(b"".join(map(_code, (read, write)))).hexdigest()
        self._write = write or _png
        form = ReplyFormat(name, num_classes, fewest_classes, tuple(class_names), read)
        self._server = Shared(Server(address, access or RemoteAccess(), form, clock or SystemClock()))

    @property
    def server(self) -> Server:
        """The server as it is asked."""
        server = self._server.value
        assert isinstance(server, Server)
        return server

    @property
    def gives(self) -> Gives:
        """What its first answer was; scores before there is one."""
        first = self.server.record.first
        return "labels" if first is not None and first.gives == "labels" else "scores"

    @contextmanager
    def recorded_in(self, ledger: QueryLedger) -> Iterator[None]:
        """Count requests and keep answers in a ledger while the context lasts; else they are kept in memory."""
        record, before = self.server.record, self.server.record.ledger
        record.ledger = ledger
        try:
            yield
        finally:
            self.server.close()
            record.ledger = before

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Scores `[B, K]` of images; for labels 1 for the class and -1 for all others."""
        return self._scores(pictures_of(x), b"").to(x.device)

    def repeats_labels(self, images: Tensor) -> bool:
        """Whether some pictures get the same class when they are sent once more; the first answers stay."""
        some = pictures_of(images[:_ASKED_AGAIN])
        return torch.equal(self._scores(some, b"").argmax(1), self._scores(some, b"again").argmax(1))

    def _scores(self, pictures: Sequence[SentPicture], kind: bytes) -> Tensor:
        asked = [UnsentPicture(each.key + kind, partial(self._content, each)) for each in pictures]
        return torch.stack([reply.scores for reply in self.server.ask(asked)])

    def _content(self, picture: SentPicture) -> tuple[bytes, str]:
        return self._write(picture.png())

    @staticmethod
    def _never(images: object) -> None:
        raise AssertionError("a server is asked by forward")


def _png(content: bytes) -> tuple[bytes, str]:
    return content, "image/png"


def _name(place: str) -> str:
    return place.partition("://")[2].strip("/").replace("/", "-").replace(":", "-")


def _code(function: Callable[..., object] | None) -> bytes:
    return b"" if function is None else code_of(function).encode()
