"""The address of a server, checked before anything is sent to it."""

import ipaddress
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from robustkit.errors import UserError
from robustkit.limits import shortened

SCHEMES = ("http://", "https://")
_LONGEST = 2000


class ServerAddress(NamedTuple):
    """The parts of a URL."""

    secure: bool
    host: str
    port: int
    target: str  # path and query
    place: str  # the URL without its query, for reports

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole URL, as a proxy gets it."""
        return f"http{'s' if self.secure else ''}://{self.authority}{self.target}"

    @property
    def private(self) -> bool:
        """Whether nobody else can read what is sent."""
        loopback = self.host == "localhost"
        with suppress(ValueError):
            loopback = ipaddress.ip_address(self.host).is_loopback
        return self.secure or loopback


def is_url(name: str) -> bool:
    """Whether a model's name is the address of a server."""
    return name.lower().startswith(SCHEMES)


def server_address(url: str) -> ServerAddress:
    """The parts of a URL.

    Raises:
        UserError: it is none, or has a password in it, which would be stored with the command.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not is_url(url) or not host or len(url) > _LONGEST or not all("!" <= letter <= "~" for letter in url):
        raise UserError(
            f"{shortened(url.split('@')[-1])} is not an address of a server, such as http://127.0.0.1:8000/."
        )
    if parts.username is not None or parts.password is not None:
        raise UserError("The address has a password in it; put a token into the environment variable ROBUSTKIT_TOKEN.")
    secure = parts.scheme.lower() == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    address = ServerAddress(secure, host, port or (443 if secure else 80), target, "")
    return address._replace(place=f"http{'s' if secure else ''}://{address.authority}{parts.path}")
