"""A worker as an actor on a node of a Ray cluster: it is handed lanes, and asked for its messages again and again."""

import os
import threading
from collections.abc import Mapping
from queue import Empty, SimpleQueue

import torch

from robustkit.errors import UserError
from robustkit.evaluation.lanes import Lane, LaneFailed, Message, Opening
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.worker import work
from robustkit.version import __version__

# What a process of a cluster that was started elsewhere does not inherit.
_SENT = ("ROBUSTKIT_CACHE",)


def versions() -> dict[str, str]:
    """Of what must be the same on all nodes, because results may depend on it."""
    return {"robustkit": __version__, "torch": torch.__version__}


def surroundings() -> dict[str, str]:
    """What a worker needs of the environment of the first process."""
    return {name: os.environ[name] for name in _SENT if name in os.environ}


class WorkerActor:
    """The worker works in a thread of its own, so that the actor can be talked to at any time.

    Args:
        request: what the worker resolves.
        opening: how it tries the models first.
        folder: the current one of the first process; relative paths start there.
        needed: versions of the first process.
        environment: to be set.
    """

    def __init__(
        self, request: EvaluationRequest, opening: Opening, folder: str, needed: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._lanes: SimpleQueue[Lane] = SimpleQueue()
        self._messages: SimpleQueue[Message] = SimpleQueue()
        os.environ.update(environment)
        threading.Thread(target=self._live, args=(request, opening, folder, dict(needed)), daemon=True).start()

    def up(self) -> None:
        """Returns as soon as the process is there."""

    def take(self, lane: Lane) -> None:
        """Work on the lane when the one before it is finished."""
        self._lanes.put(lane)

    def messages(self) -> list[Message]:
        """What the worker has sent since the last call; waits for the first message."""
        sent = [self._messages.get()]
        try:
            while True:
                sent.append(self._messages.get_nowait())
        except Empty:
            return sent

    def send(self, message: Message, /) -> None:
        """Called by the worker itself."""
        self._messages.put(message)

    def poll(self) -> bool:
        """Called by the worker itself."""
        return not self._lanes.empty()

    def recv(self) -> Lane:
        """Called by the worker itself."""
        return self._lanes.get()

    def _live(self, request: EvaluationRequest, opening: Opening, folder: str, needed: dict[str, str]) -> None:
        try:
            _enter(folder)
            _check_versions(needed)
        except UserError as error:
            self.send(LaneFailed(str(error), mendable=True))
        else:
            work(self, request, opening)


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError:
        raise UserError(
            f"A node of the Ray cluster has no folder {folder}; run the command in one that all nodes share."
        ) from None


def _check_versions(needed: dict[str, str]) -> None:
    here = versions()
    for package, version in needed.items():
        if here[package] != version:
            raise UserError(
                f"A node of the Ray cluster has {package} {here[package]}, and this machine {version}; install the "
                "same on all nodes."
            )
