"""BatchNorm in adversarial training: frozen statistics, its mode during an attack, and recalibration.

A BatchNorm layer has two learnable numbers per channel, and running statistics that change in train mode. Freezing its
weights does not freeze the statistics, and `model.train()` after an attack lets them change again.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm
from typing_extensions import Self

from robustkit.classifier.recurrent import differentiable_recurrences
from robustkit.errors import unknown
from robustkit.models.batchnorm import recalculate_statistics
from robustkit.models.preprocessing import placement
from robustkit.nethook.restore import restore_modes

NORMS = (_BatchNorm,)
# Also InstanceNorm, which has running statistics with `track_running_stats=True`, and the vectors of spectral
# normalisation, from which the weight is computed.
_TRACKERS = (_NormBase, _SpectralNorm)
MODES = ("eval", "train", "batch")


class _Frozen(nn.Module):
    """A layer that stays in eval mode."""

    def train(self, mode: bool = True) -> Self:
        """Does nothing: the layer stays in eval mode."""
        return super().train(False)


@contextmanager
def statistics_frozen(modules: Iterable[nn.Module]) -> Iterator[None]:
    """All norms in these modules are in eval mode while the context lasts, also after `.train()` and attacks.

    Running statistics stay the same bits. Weights and biases still learn, unless they are frozen too
    (`freezing.frozen`). The names in the state dict do not change, so a state dict saved inside can be loaded outside.

    Args:
        modules: such as `[model]` or some of its layers; each is searched for BatchNorm, InstanceNorm and spectral
            normalisation.
    """
    norms = {norm for module in modules for norm in module.modules() if tracks_statistics(norm)}
    before: list[tuple[nn.Module, Any, bool]] = [(norm, type(norm), norm.training) for norm in norms]
    try:
        for norm, kind, _ in before:
            # The class is replaced, not the module: names, weights and references to it stay valid.
            norm.__class__ = _frozen_kind(kind)
            norm.training = False
        yield
    finally:
        for norm, kind, training in before:
            norm.__class__ = kind
            norm.training = training


@contextmanager
def modes(network: nn.Module, mode: str) -> Iterator[None]:
    """The network in the mode that a training's attack uses; modes are restored when the context ends.

    Every module gets its own mode back, also after an exception: a layer that was in eval mode is in eval mode again.
    A layer with a `train` method of its own, such as one that folds weights in eval mode, is told by it.
    Buffers are restored after "batch" alone.

    Args:
        network: in any mode, which may differ between its modules.
        mode: "eval"; "batch", eval mode except for BatchNorm, which uses the batch's statistics without tracking them;
            "train", all modes unchanged, so that every query changes the running statistics of layers in train mode.

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
        statistics = statistics_kept(network) if mode == "batch" else nullcontext()
        with statistics, differentiable_recurrences(network, placement(network).device):
            yield
    finally:
        restore_modes(before)


@contextmanager
def statistics_kept(network: nn.Module) -> Iterator[None]:
    """Layers in train mode do not change their buffers while the context lasts: running statistics, say."""
    before = [(module, name, buffer) for module in network.modules() for name, buffer in module._buffers.items()]
    try:
        for module, name, buffer in before:
            module._buffers[name] = None if buffer is None else buffer.clone()
        yield
    finally:
        for module, name, buffer in before:
            module._buffers[name] = buffer


def recalibrate(network: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace running statistics by averages over these batches; frozen statistics stay.

    The batches may be made with the network while they are drawn: it uses its old statistics until the last one.

    Args:
        network: left in eval mode.
        batches: of images `[B, *S]`.
    """
    norms = [norm for norm in norms_of(network) if not isinstance(norm, _Frozen) and norm.running_mean is not None]
    recalculate_statistics(network, norms, batches)


def tracks_statistics(module: nn.Module) -> bool:
    """Whether this layer changes statistics of its own in train mode, which `statistics_frozen` keeps."""
    # `torch.nn.utils.spectral_norm` puts its vectors into the layer itself.
    hooks = module._forward_pre_hooks.values()
    return isinstance(module, _TRACKERS) or any(isinstance(hook, SpectralNorm) for hook in hooks)


def norms_of(network: nn.Module) -> list[_BatchNorm]:
    """All BatchNorm of a network, in order of definition."""
    return [module for module in network.modules() if isinstance(module, NORMS)]


@cache
def _frozen_kind(kind: Any) -> Any:
    # torch.fx decides by the class's `__module__` whether a module is a leaf.
    return kind if issubclass(kind, _Frozen) else type(f"Frozen{kind.__name__}", (_Frozen, kind), _home(kind))


def _home(kind: type[nn.Module]) -> dict[str, object]:
    return {"__module__": kind.__module__, "__doc__": f"{kind.__name__} with frozen statistics."}
