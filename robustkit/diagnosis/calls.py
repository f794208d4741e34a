"""Which layers a forward pass calls, in which order and inside which other layer."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook.hookable import check_hookable, why_silent
from robustkit.nethook.hooked import Inputs, Visit, hooked
from robustkit.nethook.names import has_forward, unwrap
from robustkit.nethook.structure import tensors


class Site(NamedTuple):
    """One call of one layer."""

    layer: str  # dotted name; "" is the network itself
    call: int  # of this layer, from 0


@dataclass(frozen=True)
class CallRun:
    """What one forward pass did at a site."""

    site: Site
    parent: Site | None
    leaf: bool  # no other layer was called inside
    kind: str  # the layer's class
    shape: tuple[int, ...]  # of its output for one image; empty if it has no float tensor
    sequential: bool  # a plain nn.Sequential, which has no code of its own
    same_shape: bool  # one float tensor in, one of the same shape out
    autocast: torch.dtype | None = None  # in which the model's own code computes there, under `torch.autocast`

    def precision(self, device: torch.device) -> AbstractContextManager[object]:
        """The precision that the model's own code sets at this call, to repeat it alone."""
        if self.autocast is None:
            return nullcontext()
        return torch.autocast(device.type, self.autocast, cache_enabled=False)


class Unseen(NamedTuple):
    """A layer that the diagnosis could not examine."""

    layer: str
    reason: str


class ForwardCalls(NamedTuple):
    """All calls of a forward pass, and the layers whose calls no hook could see."""

    runs: tuple[CallRun, ...]  # in the order in which they end: a layer before the one around it
    last: Site  # the innermost call whose output is the logits
    unseen: tuple[Unseen, ...]
    opaque: bool = False  # whether some of them are scripted: what they compute is not known


class _CallRecorder:
    """A probe that records each call and the call around it."""

    def __init__(self) -> None:
        self.runs: list[CallRun] = []
        self.outputs: list[Any] = []
        self._open: list[Site] = []
        self._parents: set[Site] = set()

    def before(self, visit: Visit, inputs: Inputs) -> None:
        self._parents.update(self._open[-1:])
        self._open.append(Site(visit.name, visit.call))

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> None:
        site = Site(visit.name, visit.call)
        # Calls that ended with an exception which the model caught are still on the stack.
        while self._open.pop() != site:
            pass
        tensors_in, tensors_out = floats(inputs), floats(output)
        self.outputs.append(output)
        self.runs.append(
            CallRun(
                site=site,
                parent=self._open[-1] if self._open else None,
                leaf=site not in self._parents,
                kind=type(visit.module).__name__,
                shape=tuple(tensors_out[0].shape[1:]) if tensors_out else (),
                sequential=type(visit.module).forward is nn.Sequential.forward,
                same_shape=len(tensors_in) == 1 and isinstance(output, Tensor) and tensors_in[0].shape == output.shape,
                autocast=_autocast((tensors_out or tensors_in)[:1]),
            )
        )


def record_calls(network: nn.Module, forward: Callable[[], Tensor]) -> ForwardCalls:
    """Every call of a layer of `network` while `forward()` computes logits."""
    network = unwrap(network)
    opaque = _unhookable(network)
    recorder = _CallRecorder()
    names = [name for name, module in network.named_modules() if not _inside(name, opaque) and has_forward(module)]
    with hooked(network, names, recorder, strict=False, edits=False):
        logits = forward()
    called = {run.site.layer for run in recorder.runs}
    silent = [Unseen(name, why_silent(network, name)) for name in names if name not in called]
    last = [run.site for run, output in zip(recorder.runs, recorder.outputs, strict=True) if _same(output, logits)]
    return ForwardCalls(tuple(recorder.runs), last[0] if last else Site("", 0), (*opaque, *silent), bool(opaque))


def floats(value: Any) -> list[Tensor]:
    """The float tensors inside whatever a layer takes or returns."""
    return [tensor for tensor in tensors(value) if tensor.is_floating_point()]


def _autocast(values: list[Tensor]) -> torch.dtype | None:
    """The type that `torch.autocast` computes in now, on the device of a call's values; None outside of it."""
    kinds = [value.device.type for value in values]
    return torch.get_autocast_dtype(kinds[0]) if kinds and torch.is_autocast_enabled(kinds[0]) else None


def _same(output: Any, logits: Tensor) -> bool:
    parts = floats(output)
    return bool(parts) and parts[0].data_ptr() == logits.data_ptr() and parts[0].shape == logits.shape


def _unhookable(network: nn.Module) -> tuple[Unseen, ...]:
    """Scripted layers, outermost first; layers inside them are not listed."""
    return tuple(_opaque_layers(network)) if _refusal(network, dict(network.named_modules())) else ()


def _opaque_layers(network: nn.Module) -> Iterator[Unseen]:
    opaque: list[Unseen] = []
    for name, module in network.named_modules():
        reason = None if _inside(name, opaque) else _refusal(network, {name: module})
        if reason is not None:
            opaque.append(Unseen(name, reason))
            yield opaque[-1]


def _refusal(network: nn.Module, layers: dict[str, nn.Module]) -> str | None:
    try:
        check_hookable(network, layers)
    except UserError as error:
        return str(error)
    return None


def _inside(name: str, outer: Any) -> bool:
    return any(name == each.layer or name.startswith(f"{each.layer}.") for each in outer if each.layer)
