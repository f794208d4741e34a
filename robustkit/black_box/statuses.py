"""What the status of an answer says: that the same request may be answered later, or what to correct."""

from contextlib import suppress
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from robustkit.errors import UserError

from .remote_access import Clock, RemoteAccess
from .wire import Exchange

_AGAIN = (408, 425, 429, 500, 502, 503, 504)  # statuses that may pass


def passing_reason(status: int, name: str, access: RemoteAccess) -> str:
    """Why a request failed that may be answered later.

    Args:
        status: of the answer, not 200.
        name: of the server, for errors.
        access: names the variable with the token.

    Raises:
        UserError: it will not be answered; the message says what to correct.
    """
    if status in _AGAIN:
        return _in_words(status)
    if 300 <= status < 400:
        raise UserError(
            f"{name} sends requests on to another address ({_in_words(status)}); images and tokens go only where you "
            "say, so give the final address."
        )
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise UserError(
            f"{name} refuses access ({_in_words(status)}); put its token into the environment variable "
            f"{access.token_variable}."
        )
    raise UserError(
        f"{name} answers with {_in_words(status)}; check the address, and which requests the server accepts."
    )


def pause_asked(exchange: Exchange, clock: Clock) -> float | None:
    """Seconds that the server asks to wait, in seconds or as a date; None if it does not say."""
    text = (exchange.retry_after or "").strip()
    seconds = None
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    elif text:
        with suppress(ValueError, TypeError, OverflowError):
            seconds = (parsedate_to_datetime(text) - clock.date()).total_seconds()
    return None if seconds is None else max(1.0, seconds)


def _in_words(status: int) -> str:
    """A status in the words of the standard: the server's own may be anything."""
    with suppress(ValueError):
        return f"{status} {HTTPStatus(status).phrase}"
    return f"status {status}"
