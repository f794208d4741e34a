"""What is kept of one run of a layer, and how it is kept."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from robustkit.errors import UserError
from robustkit.nethook.errors import StaleActivationError
from robustkit.nethook.hooked import Inputs
from robustkit.nethook.structure import mapped, tensors


@dataclass(frozen=True)
class Keeping:
    """How values are kept: copied or not, on which device, or reduced to something small."""

    clone: bool
    detach: bool
    device: torch.device | None
    reduce: Callable[..., Tensor] | None
    # What was copied, by id: a block returns the tensor of its last layer, which is the input of the next.
    copies: dict[int, "_Copy"] = field(default_factory=dict)

    def __call__(self, value: Any, name: str, call: int) -> "KeptValue":
        """A value with each tensor in it kept."""
        kept = mapped(value, lambda part: self._tensor(part, name, call))
        # Without a copy, a later in-place operation shows in the version counter.
        marks = [] if self.clone else [(part, part._version) for part in tensors(kept)]
        return KeptValue(kept, marks)

    def _tensor(self, part: Tensor, name: str, call: int) -> Tensor:
        _check_plain(part, name)
        if part.is_inference():
            if not (self.clone and self.detach):
                raise UserError(
                    f"Layer {name!r} runs under torch.inference_mode, whose tensors autograd cannot use; use "
                    "torch.no_grad, or keep the defaults clone=True and detach=True."
                )
            with torch.inference_mode(mode=False):
                return self._small(part, name, call)
        return self._small(part, name, call)

    def _small(self, part: Tensor, name: str, call: int) -> Tensor:
        kept = part.detach() if self.detach else part
        if self.reduce is not None:
            small = self.reduce(kept, name=name, call=call)
            if not isinstance(small, Tensor):
                raise UserError(f"reduce must return a tensor, not {type(small).__name__} (for layer {name!r}).")
            if small.untyped_storage().data_ptr() != part.untyped_storage().data_ptr():
                return small if self.device is None else small.to(self.device)
            kept = small
        if not self.clone:
            return kept if self.device is None else kept.to(self.device)
        if self.reduce is not None or part.is_inference():
            return _copied(kept, self.device)
        known = self.copies.get(id(part))
        if known is None or known.original() is not part or known.version != part._version:
            known = _Copy(weakref.ref(part), part._version, _copied(kept, self.device))
            self.copies[id(part)] = known
        return known.copy


def _check_plain(part: Tensor, name: str) -> None:
    if torch._C._functorch.is_functorch_wrapped_tensor(part):
        raise UserError(
            f"Layer {name!r} runs inside torch.func, whose tensors cannot leave it; trace a plain forward pass."
        )


class _Copy(NamedTuple):
    original: "weakref.ref[Tensor]"
    version: int
    copy: Tensor


def _copied(part: Tensor, device: torch.device | None) -> Tensor:
    return part.clone() if device is None else part.to(device, copy=True)


@dataclass(frozen=True)
class KeptValue:
    """A value, and the versions of the tensors in it that were not copied."""

    value: Any
    marks: list[tuple[Tensor, int]]

    def read(self, name: str) -> Any:
        """The value, if it is still what was kept."""
        if any(part._version != version for part, version in self.marks):
            raise StaleActivationError(
                f"What was kept of layer {name!r} was overwritten in place later; keep copies with clone=True."
            )
        return self.value


@dataclass
class Call:
    """One run of a layer, as a `Trace` saw it."""

    name: str
    module: nn.Module
    index: int  # which run of the layer within its forward pass of the model, from 0
    order: int  # place among all runs of the trace, from 0, by when they ended
    kept: dict[str, KeptValue] = field(repr=False)
    edge: Any = field(default=None, repr=False)  # gradient edges in the structure of the output, None without graph
    views: list[tuple[Tensor, int]] = field(default_factory=list, repr=False)
    grads: list[Any] = field(default_factory=list, repr=False)  # [] before Trace.grad, then one value

    @property
    def output(self) -> Any:
        """What the layer returned, after edits."""
        return self._read("output")

    @property
    def raw(self) -> Any:
        """What the layer returned, before the trace's own edit."""
        return self._read("raw" if "raw" in self.kept else "output")

    @property
    def input(self) -> Any:
        """What went in: the one value, or a tuple of the positional and keyword ones."""
        values = (*self.args, *self.kwargs.values())
        return values[0] if len(values) == 1 else values

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self._inputs().args

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments."""
        return self._inputs().kwargs

    @property
    def grad(self) -> Any:
        """The gradient of the last `Trace.grad` in the output, in its structure; None where there is none."""
        if not self.grads:
            raise UserError("No gradient was asked for; open the Trace with grad=True and call its grad(loss).")
        return self.grads[0]

    def _inputs(self) -> Inputs:
        value: Inputs = self._read("input")
        return value

    def _read(self, what: str) -> Any:
        if what not in self.kept:
            raise UserError(f"The trace keeps no {what}; open it with {what}=True.")
        return self.kept[what].read(self.name)


def edges_of(output: Any, name: str) -> Any:
    """The gradient edges of a layer's tensors as they are now: later in-place operations do not move them."""

    def edge(part: Tensor) -> GradientEdge | None:
        _check_plain(part, name)
        return get_gradient_edge(part) if part.requires_grad else None

    return mapped(output, edge)


def views_of(output: Any) -> list[tuple[Tensor, int]]:
    """The views among a value's tensors with their versions: in-place operations cut the edges of views."""
    return [(part.detach(), part._version) for part in tensors(output) if part.requires_grad and part._is_view()]


def graded(calls: Sequence[Call], loss: Tensor, retain_graph: bool | None, create_graph: bool) -> None:
    """Ask for the gradient of `loss` at all edges of all calls in one pass, and store it with the calls."""
    places: dict[Any, GradientEdge] = {}

    def place(edge: GradientEdge) -> GradientEdge:
        # A container's output is that of its last layer, with the same edge.
        return places.setdefault((edge.node, edge.output_nr), edge)

    for call in calls:
        mapped(call.edge, place, GradientEdge)
    edges = list(places.values())
    found = torch.autograd.grad(loss, edges, None, retain_graph, create_graph, allow_unused=True) if edges else ()
    grads = dict(zip(places, found, strict=True))
    for call in calls:
        call.grads = [mapped(call.edge, lambda edge: grads[edge.node, edge.output_nr], GradientEdge)]
