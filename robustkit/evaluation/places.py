"""Where the workers of a run live: processes of this machine, or of the nodes of a Ray cluster."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from robustkit.evaluation.lanes import Lane, Message, Opening
from robustkit.evaluation.local_workers import LocalWorkers
from robustkit.evaluation.resolved import Evaluation
from robustkit.host.progress import Silent


class WorkerProcess(Protocol):
    """A process that attacks the images of one lane after the other."""

    def send(self, lane: Lane) -> None:
        """Hand a lane to the worker; one that is lost gets none, which `receive` notices next."""

    def receive(self) -> Message | None:
        """What the worker sent next, or None if it has ended."""

    def ended(self) -> str:
        """How the process ended, as samples.csv and the report say it."""

    def stop(self) -> None:
        """End the process."""


class Workplace(Protocol):
    """Starts workers, and waits for what they send."""

    def room(self) -> int:
        """How many workers may run now, those that do included."""

    def start(self, number: int, opening: Opening) -> WorkerProcess:
        """A new worker."""

    def heard_of(self, workers: Sequence[Any]) -> list[Any]:
        """The workers that have sent something or ended; waits for the first, or returns none after some seconds."""

    def close(self) -> None:
        """Release what the place holds, when all its workers are stopped."""


def place_of(evaluation: Evaluation) -> Workplace:
    """The place that the request of an evaluation names.

    Raises:
        UserError: it needs a package that is not installed.
    """
    assert evaluation.origin is not None, "workers need the request"
    request = replace(evaluation.origin, watch=Silent(), retrain=False, out=None, workers=None)
    if request.backend == "local":
        return LocalWorkers(request)
    from robustkit.evaluation.ray_workers import RayWorkers

    return RayWorkers(replace(request, backend="local", ray_address=None), evaluation.device, request.ray_address)
