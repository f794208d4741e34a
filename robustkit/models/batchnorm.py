"""Recalculate the running statistics of BatchNorm layers as plain averages over batches."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@torch.no_grad()
def recalculate_statistics(network: nn.Module, norms: Sequence[_BatchNorm], batches: Iterable[Tensor]) -> None:
    """Replace the running statistics of some layers by averages over these batches, at the current weights.

    The batches may be made with the network while they are drawn: it uses its old statistics until the last one.

    Args:
        network: left in eval mode.
        norms: layers of it that have running statistics; a layer that no batch reaches keeps its own.
        batches: of images `[B, *S]`.
    """
    network.eval()
    statistics = [_initial(norm) for norm in norms]
    for x in batches if norms else ():
        with _averaging(norms, statistics):
            network(x)
    for norm, values in zip(norms, statistics, strict=True):
        if int(values["num_batches_tracked"]) > 0:
            for name, value in values.items():
                norm.get_buffer(name).copy_(value)


@contextmanager
def _averaging(norms: Sequence[_BatchNorm], statistics: list[dict[str, Tensor]]) -> Iterator[None]:
    """The layers in train mode, tracking into `statistics` while the context lasts, every batch with equal weight."""
    before = [(norm, dict(norm._buffers), norm.momentum) for norm in norms]
    for norm, values in zip(norms, statistics, strict=True):
        norm._buffers.update(values)
        norm.momentum = None  # the plain average over all batches
        norm.train()
    try:
        yield
    finally:
        for norm, buffers, momentum in before:
            norm._buffers.update(buffers)
            norm.momentum = momentum
            norm.eval()


def _initial(norm: _BatchNorm) -> dict[str, Tensor]:
    """The statistics of a layer that has seen no batch."""
    buffers = {name: norm._buffers[name] for name in STATISTICS}
    return {
        name: torch.ones_like(value) if name == "running_var" else torch.zeros_like(value)
        for name, value in buffers.items()
        if value is not None
    }
