"""The loss of a batch and its gradient in the weights, in one process or, with DistributedDataParallel, in several.

The attack queries the bare network. The wrapper goes around the loss: an objective may call the network several times
(TRADES and MART call it twice, with split BatchNorm in two branches), and the wrapper counts that as one forward and
one backward. The wrapper holds the weights and no buffers, so it copies no statistics between those calls, and no
forward waits for other processes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..inner_attack.objectives import BatchLoss
from .batches import AttackedBatch, Batch
from .team import Team

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


class Learner:
    """Adds the gradients of a step's batches to each `.grad`; with the last batch, those of all processes.

    Args:
        team: the processes.
        loss: of a batch, by the bare network.
    """

    def __init__(self, team: Team, loss: Callable[[AttackedBatch], BatchLoss]) -> None:
        self.team, self.loss = team, loss
        self._wrapped: DistributedDataParallel | None = None

    @contextmanager
    def wrapped(self, weights: Sequence[nn.Parameter]) -> Iterator[None]:
        """The loss wrapped for exactly these weights while the context lasts."""
        if self.team.alone:
            yield
            return
        from torch.nn.parallel import DistributedDataParallel

        self.team.ready()
        # A step may leave a weight unused (a skipped layer, a branch). If no process uses it, its `.grad` stays None,
        # so that momentum does not move it.
        self._wrapped = DistributedDataParallel(
            _Loss(self.loss, weights), process_group=self.team.tensors, find_unused_parameters=True
        )
        try:
            yield
        finally:
            self._wrapped = None

    def part(self, batch: Batch, x_adv: Tensor, images: int) -> AttackedBatch:
        """A batch with its adversarial images; `images` counts the whole step over all processes."""
        copies = self.team.copies(batch.size)
        counted = slice(None) if copies == 1 else self.team.own(batch.size)
        return AttackedBatch(batch.x, x_adv, batch.y, len(batch.y) / images / copies, counted)

    @contextmanager
    def turn(self, part: AttackedBatch, *, last: bool) -> Iterator[BatchLoss]:
        """The loss of a batch; when the context ends, its gradient is added to each `.grad`."""
        if self.team.alone:
            result = self.loss(part)
            yield result
            (result.loss * part.share).backward()  # type: ignore[no-untyped-call]
            return
        assert self._wrapped is not None, "a step outside of wrapped()"
        with nullcontext() if last else self._wrapped.no_sync():
            result = self._wrapped(part)
            yield result
            # The wrapper takes the mean over processes, the step needs the sum.
            scaled = result.loss * (part.share * self.team.size)
            with self.team.exchange() if last else nullcontext():
                scaled.backward()


class _Loss(nn.Module):
    """The loss of a batch as a module whose parameters are the weights that learn."""

    def __init__(self, loss: Callable[[AttackedBatch], BatchLoss], weights: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.loss, self.weights = loss, nn.ParameterList(weights)
        # Never used: torch warns on standard error if it is told to look for unused weights and finds none.
        self.spare = nn.Parameter(torch.zeros((), device=weights[0].device))

    def forward(self, part: AttackedBatch) -> BatchLoss:
        """The loss of the batch."""
        return self.loss(part)
