"""A connection to a Ray cluster, or a cluster of this machine; whatever fails is one line, after a bounded time.

`ray.init` waits for minutes for a cluster that does not answer, and writes about it to the terminal. So a process of
its own tries it first.
"""

import logging
import os
import secrets
import socket
import subprocess
import sys
import time
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Final

from robustkit.errors import UserError

_CONNECT: Final = 10  # seconds until something listens at the address
_TRY: Final = 60  # seconds until it is a cluster that takes us in
_HEAD: Final = 20  # seconds that the head may be away; after 60 Ray ends this process
_OBJECTS: Final = 256 * 2**20  # bytes of shared memory: rows are small
# Ray reads both when it is imported. Without the second it prints its own reports of lost processes on standard output.
_QUIET: Final = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}
_TRIAL: Final = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False)
"""


class Cluster:
    """A Ray cluster, which is connected to when it is first needed.

    Args:
        address: HOST:PORT, "auto" for the cluster that `ray start` started on this machine, or None for that of
            RAY_ADDRESS; without it a cluster of this machine is started, which ends with this process.

    Raises:
        UserError: Ray is not installed.
    """

    def __init__(self, address: str | None) -> None:
        if find_spec("ray") is None:
            raise UserError("Ray is not installed; install it: pip install ray.")
        self.address = address or os.environ.get("RAY_ADDRESS") or None
        self._ours = False

    @cached_property
    def ray(self) -> Any:
        """The module, connected to the cluster; a connection that the caller has already is used.

        Raises:
            UserError: the cluster cannot be reached, or does not take us in.
        """
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        if self.address is None:
            _shut_off()
        else:
            _try(self.address)
        import ray

        if not ray.is_initialized():
            self._ours = True
            started: dict[str, Any] = (
                {"include_dashboard": False, "object_store_memory": _OBJECTS} if self.address is None else {}
            )
            try:
                ray.init(self.address or "local", log_to_driver=False, logging_level=logging.ERROR, **started)
            except Exception as error:  # of many kinds
                raise UserError(refusal(f"{type(error).__name__}: {error}", self.address)) from None
        return ray

    def require_head(self) -> None:
        """Check that the head of the cluster is there: Ray ends this process without a word to us if it is not.

        Raises:
            UserError: it has not been there for some time.
        """
        host, _, port = self.ray.get_runtime_context().gcs_address.rpartition(":")
        last = time.monotonic() + _HEAD
        while True:
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
                return
            except OSError:
                if time.monotonic() > last:
                    raise UserError(
                        "The head of the Ray cluster does not answer any more. What is finished is stored; start the "
                        "cluster, and the same command goes on."
                    ) from None
                time.sleep(1)

    def close(self) -> None:
        """End the connection, and the cluster if it was started here."""
        if self._ours:
            self.ray.shutdown()


def _shut_off() -> None:
    """A cluster of this machine listens to this machine only, and to those who know its token.

    Ray itself would write a token to the home folder, which may be read-only.
    """
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # 0: processes bind to 127.0.0.1
    if os.environ.setdefault("RAY_AUTH_MODE", "token") == "token":
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _try(address: str) -> None:
    """Connect to a cluster in another process, which can be ended.

    Raises:
        UserError: it cannot.
    """
    if "://" in address:
        raise UserError("Ray Client (ray://) is not supported; run the command on a node, with --ray-address auto.")
    if address != "auto":
        _connect(address)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRIAL, address], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_TRY, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        said = (late.stderr or b"").decode(errors="replace") + "\nTimeoutExpired"
        raise UserError(refusal(said, address)) from None
    if done.returncode:
        raise UserError(refusal(done.stderr, address))


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"A Ray address is HOST:PORT or auto, not {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"Nothing answers at the Ray address {address} ({reason}); is the cluster running, and is this its head?"
        ) from None


def refusal(said: str, address: str | None) -> str:
    """One line about a failed connection.

    Args:
        said: what Ray wrote about it.
        address: of the cluster; None for one that was to be started.
    """
    if address is None:
        return f"Ray cannot start a cluster on this machine ({_last_line(said)}); try --workers without --backend ray."
    if "InvalidAuthToken" in said or "AuthenticationError" in said or "Unauthenticated" in said:
        return (
            "The Ray cluster does not accept this token, or needs one; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or "
            "RAY_AUTH_TOKEN_PATH as on its head."
        )
    if "Version mismatch:" in said:
        versions = _shortened(said.partition("Version mismatch:")[2])
        return f"The Ray cluster has another version of Ray or Python than this machine ({versions}); install the same."
    if "raylet_ipc_client" in said:
        return (
            "This machine is not a node of the Ray cluster; run `ray start --address HOST:PORT` of its head here first."
        )
    if "TimeoutExpired" in said:
        return f"The Ray cluster at {address} did not answer within {_TRY} s; is it a Ray head, and is it healthy?"
    return f"Ray cannot connect to {address} ({_last_line(said)})."


def _last_line(said: str) -> str:
    """The last line that is not part of a trace of the stack."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(("/", "***"))]
    return _shortened(lines[-1]) if lines else "no reason given"


def _shortened(text: str) -> str:
    return " ".join(text.split()).rstrip(".")[:200]
