"""One request and its answer over HTTP, with a deadline for the whole of it and a limit on its size.

The connection is kept open: a query to a small model takes less time than a new connection. Redirects are not
followed, so pictures and the token go to the host that was named and to no other.
"""

import base64
import http.client
import io
import select
import socket
import ssl
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from robustkit.errors import UserError
from robustkit.limits import MIB

from .address import ServerAddress
from .remote_access import Clock

LARGEST = 4 * MIB  # of an answer; 50,000 scores of 20 digits take 1.1


class UnreachableError(Exception):
    """No connection, so that nothing was sent. The text says why."""


class LostError(Exception):
    """The request was sent, and no whole answer came. The text says why."""


class Exchange(NamedTuple):
    """The answer to one request."""

    status: int
    retry_after: str | None
    body: bytes


class Wire:
    """A connection to a server, directly or through the proxy that the environment names.

    Args:
        address: of the server.
        timeout: seconds for each request with its answer.
        clock: tells the time.
    """

    def __init__(self, address: ServerAddress, timeout: float, clock: Clock) -> None:
        self.address, self.timeout = address, timeout
        self._deadline = _Deadline(timeout, clock)
        self._target, self._headers = address.target, {"Host": address.authority}
        self._connection = self._opened()
        weakref.finalize(self, self._connection.close)

    def connect(self) -> None:
        """Connect, if there is no connection.

        Raises:
            UnreachableError: there is none to be had.
            UserError: the server has no valid certificate.
        """
        self._deadline.begin()
        if self._connection.sock is not None:
            # What can be read before a request was sent is the end of the connection, or not meant for us.
            if not select.select([self._connection.sock], [], [], 0)[0]:
                return
            self.close()
        try:
            self._connection.connect()
        except ssl.SSLCertVerificationError:
            raise UserError(f"{self.address.place} has no valid certificate; check the address.") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise UnreachableError(_reason(error)) from None

    def post(self, body: bytes, headers: Mapping[str, str]) -> Exchange:
        """Send a body, and return the answer.

        Raises:
            LostError: no whole answer came in time.
            UserError: the answer is too large.
        """
        try:
            assert self._connection.sock is not None
            self._connection.sock.settimeout(self.timeout)
            self._connection.request("POST", self._target, body, {**self._headers, **headers})
            response = self._connection.getresponse()
            answer = response.read(LARGEST + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:  # a chunk of -5 bytes is a ValueError
            self.close()
            raise LostError(_reason(error)) from None
        if len(answer) > LARGEST:
            self.close()
            raise UserError(
                f"An answer of {self.address.place} has more than {LARGEST // MIB} MiB; answer with the scores alone."
            )
        if response.length and not response.isclosed():
            self.close()
            raise LostError("it closed the connection")
        if response.will_close:
            self.close()
        return Exchange(response.status, response.getheader("Retry-After"), answer)

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._connection.close()

    def abort(self) -> None:
        """End what another thread waits for; closing alone would not wake it."""
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _opened(self) -> http.client.HTTPConnection:
        address, proxy = self.address, _proxy(self.address)
        host, port = (address.host, address.port) if proxy is None else (proxy.host, proxy.port)
        kind = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
        connection = kind(host, port, timeout=self.timeout)
        # Each read gets the time that is left: a server that sends one byte at a time would never be late.
        connection.response_class = partial(_timed_response, self._deadline)  # type: ignore[assignment]
        if proxy is not None and address.secure:
            connection.set_tunnel(address.host, address.port, proxy.headers)
        elif proxy is not None:
            self._target = address.url
            self._headers |= proxy.headers
        return connection


class _Deadline:
    """The end of the time for one request."""

    def __init__(self, timeout: float, clock: Clock) -> None:
        self.timeout, self.clock, self.end = timeout, clock, 0.0

    def begin(self) -> None:
        self.end = self.clock.now() + self.timeout

    def left(self) -> float:
        """Seconds until the end.

        Raises:
            TimeoutError: there are none.
        """
        left = self.end - self.clock.now()
        if left <= 0:
            raise TimeoutError
        return left


def _timed_response(deadline: _Deadline, sock: socket.socket, *arguments: Any, **more: Any) -> http.client.HTTPResponse:
    return http.client.HTTPResponse(_Timed(sock, deadline), *arguments, **more)  # type: ignore[arg-type]


class _Timed:
    """A socket as `HTTPResponse` uses it, whose reads end at the deadline of the request."""

    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self.sock, self.deadline = sock, deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self.sock, self.deadline))


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: _Deadline) -> None:
        self.sock, self.deadline = sock, deadline
        self.file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self.sock.settimeout(self.deadline.left())
        return self.file.readinto(buffer)

    def close(self) -> None:
        self.file.close()
        super().close()


class _Proxy(NamedTuple):
    host: str
    port: int
    headers: dict[str, str]


def _proxy(address: ServerAddress) -> _Proxy | None:
    """The proxy for an address, as urllib chooses it: http_proxy, https_proxy and no_proxy."""
    url = getproxies().get("https" if address.secure else "http")
    if not url or proxy_bypass(address.authority):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host:
        raise UserError("The proxy in the environment has no host; correct http_proxy or https_proxy.")
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    signed = {"Proxy-Authorization": "Basic " + base64.b64encode(user.encode()).decode()}
    return _Proxy(host, port or 80, signed if parts.username else {})


def _reason(error: Exception) -> str:
    """Why a connection failed, in words of this machine: nothing that the server sent, which may echo the token."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, socket.gaierror):
        return "its host has no address"
    if isinstance(error, (http.client.RemoteDisconnected, http.client.IncompleteRead)):
        return "it closed the connection"
    if isinstance(error, (http.client.HTTPException, ValueError)):
        return "it does not answer in HTTP"
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
