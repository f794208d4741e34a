"""BatchNorm in adversarial training: frozen for good, silent while attacking, and statistics taken anew at the end.

It is two learnable numbers per channel plus running statistics that move in train mode only: freezing its weights
leaves the statistics moving, and `model.train()` after an attack starts them again.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import Self

from robustkit.errors import unknown

NORMS = (_BatchNorm,)
MODES = ("eval", "train", "batch")

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class _Frozen(nn.Module):
    """Ignores `.train()`."""

    def train(self, mode: bool = True) -> Self:
        """Stays in eval mode, whatever is asked."""
        return super().train(False)


@contextmanager
def statistics_frozen(modules: Iterable[nn.Module]) -> Iterator[None]:
    """All BatchNorm in these modules in eval mode while the context lasts, through any `.train()` and any attack.

    Running statistics then stay as they are to the bit. Weights and biases still learn, unless they are frozen too
    (`freezing.frozen`). Names in the state dict do not change, so what is saved inside can be loaded outside.

    Args:
        modules: such as `[model]`, or some of its layers; each is searched for BatchNorm.
    """
    norms = {norm for module in modules for norm in module.modules() if isinstance(norm, NORMS)}
    before: list[tuple[_BatchNorm, Any, bool]] = [(norm, type(norm), norm.training) for norm in norms]
    try:
        for norm, kind, _ in before:
            # The class is swapped, not the module: names, weights and every reference to it stay.
            norm.__class__ = _frozen_kind(kind)
            norm.training = False
        yield
    finally:
        for norm, kind, training in before:
            norm.__class__ = kind
            norm.training = training


@contextmanager
def modes(network: nn.Module, mode: str) -> Iterator[None]:
    """The network as an attack of the training meets it; then every module's own mode and buffers are put back.

    Each module's own flag, not `network.train()`: a layer that was in eval mode before is in eval mode after, also
    when an exception ends the context.

    Args:
        network: in any mode, each module in its own.
        mode: "eval"; "batch", eval but for BatchNorm, which uses the batch's statistics and keeps the running ones as
            they are; "train", all modes as they are, so that the running statistics move at every query.

    Raises:
        UserError: there is no such mode.
    """
    if mode not in MODES:
        raise unknown("mode", mode, MODES)
    before = [(module, module.training) for module in network.modules()]
    try:
        if mode != "train":
            network.eval()
        if mode == "batch":
            for norm in norms_of(network):
                norm.train()
        with statistics_kept(network) if mode == "batch" else nullcontext():
            yield
    finally:
        for module, training in before:
            module.training = training


@contextmanager
def statistics_kept(network: nn.Module) -> Iterator[None]:
    """Running statistics as they are while the context lasts, though BatchNorm in train mode uses the batch's."""
    before = [(norm, name, norm._buffers[name]) for norm in norms_of(network) for name in _STATISTICS]
    try:
        for norm, name, buffer in before:
            norm._buffers[name] = None if buffer is None else buffer.clone()
        yield
    finally:
        for norm, name, buffer in before:
            norm._buffers[name] = buffer


@torch.no_grad()
def recalibrated(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Take running statistics anew, as plain averages over these batches, of the weights as they are.

    Frozen ones stay. The batches may be made from the network while they are asked for: until the last of them it
    answers with its old statistics.

    Args:
        network: left in eval mode.
        batches: of images `[B, *S]`.
    """
    network.eval()
    norms = [norm for norm in norms_of(network) if not isinstance(norm, _Frozen) and norm.running_mean is not None]
    fresh = [_reset(norm) for norm in norms]
    for x in batches if norms else ():
        with _averaging(norms, fresh):
            network(x)
    for norm, values in zip(norms, fresh, strict=True):
        # A layer that was never asked, such as the branch for clean images, keeps what it had.
        if int(values["num_batches_tracked"]) > 0:
            for name, value in values.items():
                norm.get_buffer(name).copy_(value)


@contextmanager
def _averaging(norms: list[_BatchNorm], statistics: list[dict[str, Tensor]]) -> Iterator[None]:
    """These layers in train mode on other statistics, which take in every batch alike, while the context lasts."""
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


def _reset(norm: _BatchNorm) -> dict[str, Tensor]:
    """Statistics of a layer that has seen nothing."""
    own = {name: norm._buffers[name] for name in _STATISTICS}
    return {
        name: torch.ones_like(value) if name == "running_var" else torch.zeros_like(value)
        for name, value in own.items()
        if value is not None
    }


def norms_of(network: nn.Module) -> list[_BatchNorm]:
    """All BatchNorm of a network, in order of definition."""
    return [module for module in network.modules() if isinstance(module, NORMS)]


@cache
def _frozen_kind(kind: Any) -> Any:
    # torch.fx takes a module for a leaf by where its class says it is from.
    return kind if issubclass(kind, _Frozen) else type(f"Frozen{kind.__name__}", (_Frozen, kind), _home(kind))


def _home(kind: type[nn.Module]) -> dict[str, object]:
    return {"__module__": kind.__module__, "__doc__": f"{kind.__name__} whose statistics never move."}
