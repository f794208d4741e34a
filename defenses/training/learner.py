"""The loss of a batch and its gradient in the weights: of one process, or of all, by DistributedDataParallel.

The network that is attacked is the bare one. What is wrapped is the loss: however often an objective asks the network
(TRADES and MART ask twice, split BatchNorm in two branches), that is one forward and one backward to the wrapper. It
sees the weights alone, no buffers, so it copies no statistics between two of those queries, and no forward waits for
other processes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..inner_attack.objectives import Learnt
from .batches import AttackedBatch, Batch
from .parallel import Team

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


class Learner:
    """Adds gradients to each `.grad`, of some batches of one step; with the last one, those of all processes.

    Args:
        team: the processes.
        loss: of a batch, by the bare network.
    """

    def __init__(self, team: Team, loss: Callable[[AttackedBatch], Learnt]) -> None:
        self.team, self.loss = team, loss
        self._wrapped: DistributedDataParallel | None = None

    @contextmanager
    def wrapped(self, weights: Sequence[nn.Parameter]) -> Iterator[None]:
        """The loss wrapped while the context lasts, for these weights, which no others may join."""
        if self.team.alone:
            yield
            return
        from torch.nn.parallel import DistributedDataParallel

        self.team.ready()
        # A weight may be out of some step's losses (a layer that is skipped, a branch). Of one that no process uses
        # `.grad` stays None, so that no momentum moves it.
        self._wrapped = DistributedDataParallel(
            _Loss(self.loss, weights), process_group=self.team.tensors, find_unused_parameters=True
        )
        try:
            yield
        finally:
            self._wrapped = None

    def part(self, batch: Batch, x_adv: Tensor, images: int) -> AttackedBatch:
        """A batch of a step of so many images over all processes, attacked."""
        copies = self.team.copies(batch.size)
        counted = slice(None) if copies == 1 else self.team.own(batch.size)
        return AttackedBatch(batch.x, x_adv, batch.y, len(batch.y) / images / copies, counted)

    @contextmanager
    def turn(self, part: AttackedBatch, *, last: bool) -> Iterator[Learnt]:
        """What one batch says, and after the context its gradient in each `.grad`."""
        if self.team.alone:
            learnt = self.loss(part)
            yield learnt
            (learnt.loss * part.share).backward()  # type: ignore[no-untyped-call]
            return
        assert self._wrapped is not None, "a step outside of wrapped()"
        with nullcontext() if last else self._wrapped.no_sync():
            learnt = self._wrapped(part)
            yield learnt
            # The wrapper takes the mean over processes.
            scaled = learnt.loss * (part.share * self.team.size)
            with self.team.exchange() if last else nullcontext():
                scaled.backward()


class _Loss(nn.Module):
    """The loss of a batch as a module, whose parameters are weights of the network within."""

    def __init__(self, loss: Callable[[AttackedBatch], Learnt], weights: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.loss, self.weights = loss, nn.ParameterList(weights)
        # In no loss: torch warns once on standard error where it is to look for such weights and finds none.
        self.spare = nn.Parameter(torch.zeros((), device=weights[0].device))

    def forward(self, part: AttackedBatch) -> Learnt:
        """What the batch says."""
        return self.loss(part)
