"""Workers on the nodes of a Ray cluster, which may join and leave during a run.

Each worker is an actor that keeps its models. Ray restarts no actor and repeats no call: what is lost is handed out
again by the crew, which knows what is stored. A worker has one call for messages open at a time: that needs none of
Ray's streaming generators, whose order and back-pressure would be one more thing to know.
"""

import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import torch

from robustkit.errors import UserError
from robustkit.evaluation.lanes import HOST_LOST, Lane, Message, Opening, sending
from robustkit.evaluation.ray_actor import WorkerActor, surroundings, versions
from robustkit.evaluation.ray_cluster import Cluster
from robustkit.evaluation.request import EvaluationRequest

_POLL: Final = 5.0  # seconds to wait for a message; then the nodes of the cluster are looked at again
_LOOK: Final = 1.0  # seconds between two looks, however many messages come
_START: Final = 120.0  # seconds for a node to start a worker; it imports torch, perhaps from a slow disk
_PATIENCE: Final = 300.0  # seconds without any worker
_OF_HOSTS: Final = ("NodeDiedError", "ActorUnavailableError", "ObjectLostError", "OwnerDiedError")


class RayWorker:
    """An actor, with the call that waits for its next messages.

    Args:
        ray: the module.
        actor: a handle of a `WorkerActor`.
    """

    def __init__(self, ray: Any, actor: Any) -> None:
        self.ray, self.actor = ray, actor
        self.starting = actor.up.remote()
        self.next = actor.messages.remote()
        self.messages: deque[Message] = deque()
        self.started = time.monotonic()
        self.up = False
        self.end = ""

    def send(self, lane: Lane) -> None:
        """Hand a lane to the worker; one that is lost gets none, which `receive` notices next."""
        self.actor.take.remote(lane)

    def receive(self) -> Message | None:
        """What the worker sent next, or None if it has ended.

        Raises:
            UserError: no worker can be started on a node.
        """
        if self.messages:
            return self.messages.popleft()
        if self.late:
            self._give_up(HOST_LOST)
            return None
        try:
            self.messages.extend(self.ray.get(self.next))
        except self.ray.exceptions.RayTaskError:
            raise
        except self.ray.exceptions.RayError as error:
            if getattr(error, "actor_init_failed", False):
                raise UserError(_not_started(error)) from None
            self._give_up(end_of(error))
            return None
        self.next = self.actor.messages.remote()
        return self.messages.popleft()

    def ended(self) -> str:
        """How the worker ended."""
        return self.end

    def stop(self) -> None:
        """End the process."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.kill(self.actor)

    @property
    def late(self) -> bool:
        """Whether its node has not started it: it is gone, or what was free is taken."""
        if not self.up:
            self.up = bool(self.ray.wait([self.starting], timeout=0)[0])
        return not self.up and time.monotonic() - self.started > _START

    def _give_up(self, end: str) -> None:
        self.end = end
        self.stop()  # it may be alive and out of reach; whatever it sends is not asked for any more


class RayWorkers:
    """Starts workers on the nodes of a Ray cluster.

    Args:
        request: what each of them resolves.
        device: of the first process; workers have one of the same kind each.
        address: of the cluster; None starts one of this machine.

    Raises:
        UserError: Ray is not installed.
    """

    def __init__(self, request: EvaluationRequest, device: torch.device, address: str | None) -> None:
        self.request, self.kind = replace(request, device=device.type), "GPU" if device.type == "cuda" else "CPU"
        self.cluster = Cluster(address)
        self.workers: list[RayWorker] = []
        self.alive = time.monotonic()
        self._sent: Any = None  # the request, once on each node
        self._free, self._asked, self._looked = 0, (-1, 0), 0.0

    def room(self) -> int:
        """How many workers may run now: those that do, and one for each processor or GPU that is free.

        Raises:
            UserError: the cluster cannot be reached.
        """
        # A worker that is being started does not yet count among what is in use.
        starting = sum(not worker.up for worker in self.workers)
        asked = (len(self.workers), starting)
        if asked != self._asked or time.monotonic() - self._looked > _LOOK:
            self.cluster.require_head()
            self._free = int(self.cluster.ray.available_resources().get(self.kind, 0))
            self._asked, self._looked = asked, time.monotonic()
        return len(self.workers) + max(0, self._free - starting)

    def start(self, number: int, opening: Opening) -> RayWorker:
        """A new worker, on the node with the fewest.

        Raises:
            UserError: the evaluation cannot be sent to another process.
        """
        ray = self.cluster.ray
        if self._sent is None:
            with sending("the backend"):
                self._sent = ray.put(self.request)
        actor = ray.remote(
            num_cpus=1, num_gpus=int(self.kind == "GPU"), max_restarts=0, max_task_retries=0, max_concurrency=2,
            scheduling_strategy="SPREAD",
        )(WorkerActor)  # fmt: skip
        worker = RayWorker(ray, actor.remote(self._sent, opening, os.getcwd(), versions(), surroundings()))
        self.workers.append(worker)
        return worker

    def heard_of(self, workers: Sequence[RayWorker]) -> list[RayWorker]:
        """The workers that have sent something or ended; waits for the first, or returns none after some seconds.

        Raises:
            UserError: there has been no worker for a long time.
        """
        self.workers = list(workers)
        found = [worker for worker in workers if worker.messages or worker.late]
        if not found:
            found = self._waited_for(workers)
        self._check_alive()
        return found

    def close(self) -> None:
        """Leave the cluster; one that was started for this run ends."""
        self.workers = []
        self.cluster.close()

    def _waited_for(self, workers: Sequence[RayWorker]) -> list[RayWorker]:
        if not workers:
            time.sleep(_POLL / 10)
            return []
        ray = self.cluster.ray
        calls = [worker.next for worker in workers]
        if ray.wait(calls, timeout=_POLL)[0]:
            ready = set(ray.wait(calls, num_returns=len(calls), timeout=0)[0])
            return [worker for worker in workers if worker.next in ready]
        return []

    def _check_alive(self) -> None:
        now = time.monotonic()
        if any(worker.up for worker in self.workers):
            self.alive = now
        elif now - self.alive > _PATIENCE:
            raise UserError(
                f"For {_PATIENCE / 60:.0f} minutes no node of the Ray cluster has had a free {self.kind} for a worker; "
                "look at `ray status`. What is finished is stored; the same command goes on."
            )


def end_of(error: Exception) -> str:
    """How a worker ended, in words that evidence may hold: no address, no path.

    Args:
        error: what Ray raised when the worker was asked for its messages.
    """
    name, text = type(error).__name__, " ".join(str(error).split()).lower()
    if name == "OutOfMemoryError" or "low on memory" in text:
        return "out of memory"
    return HOST_LOST if name in _OF_HOSTS or "node has died" in text else "worker lost"


def _not_started(error: Exception) -> str:
    reason = str(error).strip().splitlines()[-1].strip().rstrip(".")
    return f"A node of the Ray cluster cannot start a worker ({reason}); install the same robustkit on all nodes."
