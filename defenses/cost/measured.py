"""Measure arithmetic, memory and time of a loss on a network.

Nothing is estimated from the architecture. Torch's own counter counts the arithmetic of convolutions and matrix
products; memory is that of the tensors that a backward pass needs.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

_FEW = (8, 16)  # rows from which the memory of a larger batch is extrapolated linearly
_MIB = 2**20


class Memory(NamedTuple):
    """MiB kept for a backward pass over one batch."""

    outer: float  # of the step that learns
    attack: float  # of one query of the attack


class Flops(NamedTuple):
    """Arithmetic of a loss and of its gradient, in floating point operations."""

    forward: int
    frozen: int  # part of `forward` that no gradient passes through
    backward: int


def flops_of(loss: Callable[[], Tensor], wanted: Sequence[Tensor]) -> Flops:
    """Count a loss and its gradient in the tensors `wanted`.

    Args:
        loss: computes one number, with gradients enabled.
        wanted: tensors whose gradient is taken; layers that it does not pass through are not counted.
    """
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        with _Frozen(counter) as share:
            value = loss()
        forward = counter.get_total_flops()
        torch.autograd.grad(value, wanted, allow_unused=True)
    return Flops(forward, share.flops, counter.get_total_flops() - forward)


def mib_of(loss: Callable[[int], Tensor], weights: nn.Module, batch: int) -> float:
    """MiB that a loss keeps for its backward pass, without the weights.

    Args:
        loss: of the given number of rows.
        weights: the network; its own tensors are not counted.
        batch: number of rows; only a few are computed, since the memory of activations is linear in it.
    """
    few, more = _FEW
    if batch <= more:
        return _saved(lambda: loss(batch), weights) / _MIB
    low, high = (_saved(lambda rows=rows: loss(rows), weights) for rows in _FEW)  # type: ignore[misc]
    return (high + (batch - more) * (high - low) / (more - few)) / _MIB


def seconds_of(work: Callable[[], object], device: torch.device, times: int = 2) -> float:
    """The shortest of a few runs, after one that does not count."""
    work()
    seconds = []
    for _ in range(times):
        _wait(device)
        start = time.perf_counter()
        work()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@contextmanager
def learning_all(network: nn.Module) -> Iterator[None]:
    """The network with no weight frozen, for comparison."""
    before = [(weight, weight.requires_grad) for weight in network.parameters()]
    network.requires_grad_(True)
    try:
        yield
    finally:
        for weight, flag in before:
            weight.requires_grad_(flag)


class _Frozen(TorchFunctionMode):
    """Sums the arithmetic of results without a gradient; works above autograd, where results have `requires_grad`."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self.counter, self.flops = counter, 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = self.counter.get_total_flops()
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not result.requires_grad:
            self.flops += self.counter.get_total_flops() - before
        return result


def _saved(loss: Callable[[], Tensor], weights: nn.Module) -> int:
    """Bytes of the storages that the graph keeps, each counted once."""
    own = {value.untyped_storage().data_ptr() for value in (*weights.parameters(), *weights.buffers())}
    # The tensors are held until the end: the address of a freed storage could be used again.
    held: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        # A folded view has parameters of its own; a transposed parameter is a view of it.
        weight = isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter)
        if not weight and address not in own:
            held[address] = tensor.detach()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        value = loss()
    total = sum(tensor.untyped_storage().nbytes() for tensor in held.values())
    del value
    return total


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
