"""What a trace records of one run of a layer."""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from robustkit.errors import UserError
from robustkit.nethook.errors import StaleActivationError
from robustkit.nethook.gradients import gradients
from robustkit.nethook.hooked import Inputs
from robustkit.nethook.structure import mapped, tensors


@dataclass(frozen=True)
class SnapshotPolicy:
    """How values are recorded: copied or not, with or without graph, on which device, or reduced to a small tensor."""

    clone: bool
    detach: bool
    device: torch.device | None
    reduce: Callable[..., Tensor] | None
    # Copies by the id of the original: a block returns the tensor of its last layer, which is the input of the next.
    copies: dict[int, "_SharedCopy"] = field(default_factory=dict)

    def __call__(self, value: Any, name: str, call: int) -> "Snapshot":
        """A snapshot of all tensors in `value`."""
        recorded = mapped(value, lambda part: self._tensor(part, name, call))
        # Without a copy, the version counter shows later in-place operations.
        versions = [] if self.clone else [(part, part._version) for part in tensors(recorded)]
        return Snapshot(recorded, versions)

    def _tensor(self, part: Tensor, name: str, call: int) -> Tensor:
        _check_plain(part, name)
        if part.is_inference() and not (self.clone and self.detach):
            raise UserError(
                f"Layer {name!r} runs under torch.inference_mode, whose tensors autograd cannot use; use "
                "torch.no_grad, or keep the defaults clone=True and detach=True."
            )
        if torch.is_inference_mode_enabled():
            # A copy made inside the mode could not be used either. Leaving the mode turns gradients on.
            with torch.inference_mode(mode=False), torch.no_grad():
                return self._recorded(part, name, call)
        return self._recorded(part, name, call)

    def _recorded(self, part: Tensor, name: str, call: int) -> Tensor:
        recorded = part.detach() if self.detach else part
        if self.reduce is not None:
            small = self.reduce(recorded, name=name, call=call)
            if not isinstance(small, Tensor):
                raise UserError(f"reduce must return a tensor, not {type(small).__name__} (for layer {name!r}).")
            if small.untyped_storage().data_ptr() != part.untyped_storage().data_ptr():
                return small if self.device is None else small.to(self.device)
            recorded = small
        if not self.clone:
            return recorded if self.device is None else recorded.to(self.device)
        if self.reduce is not None or part.is_inference():
            return _copied(recorded, self.device)
        shared = self.copies.get(id(part))
        if shared is None or shared.original() is not part or shared.version != part._version:
            shared = _SharedCopy(weakref.ref(part), part._version, _copied(recorded, self.device))
            self.copies[id(part)] = shared
        return shared.copy


def _check_plain(part: Tensor, name: str) -> None:
    if torch._C._functorch.is_functorch_wrapped_tensor(part):
        raise UserError(
            f"Layer {name!r} runs inside torch.func, whose tensors cannot leave it; trace a plain forward pass."
        )


class _SharedCopy(NamedTuple):
    original: "weakref.ref[Tensor]"
    version: int
    copy: Tensor


def _copied(part: Tensor, device: torch.device | None) -> Tensor:
    return part.clone() if device is None else part.to(device, copy=True)


@dataclass(frozen=True)
class Snapshot:
    """A recorded value, and the versions of the tensors in it that were not copied."""

    value: Any
    versions: list[tuple[Tensor, int]]

    def read(self, name: str) -> Any:
        """The value; an error if it was overwritten since."""
        if any(part._version != version for part, version in self.versions):
            raise StaleActivationError(
                f"The recorded value of layer {name!r} was overwritten in place later; record copies with clone=True."
            )
        return self.value


@dataclass
class Call:
    """One run of a layer, recorded by a `Trace`."""

    name: str
    module: nn.Module
    index: int  # which run of the layer within its forward pass of the model, from 0
    order: int  # index among all runs of the trace, from 0, in the order in which they ended
    snapshots: dict[str, Snapshot] = field(repr=False)
    edge: Any = field(default=None, repr=False)  # gradient edges in the structure of the output, None without graph
    views: list[tuple[Tensor, int]] = field(default_factory=list, repr=False)
    grads: list[Any] = field(default_factory=list, repr=False)  # [] before Trace.grad, then one value

    @property
    def output(self) -> Any:
        """The layer's output, after edits."""
        return self._read("output")

    @property
    def raw(self) -> Any:
        """The layer's output, before the trace's own edit."""
        return self._read("raw" if "raw" in self.snapshots else "output")

    @property
    def input(self) -> Any:
        """The layer's argument, or a tuple of its positional and keyword arguments."""
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
        """The gradient of the last `Trace.grad` with respect to the output, in its structure; None without graph."""
        if not self.grads:
            raise UserError("No gradient was computed; open the Trace with grad=True and call its grad(loss).")
        return self.grads[0]

    def _inputs(self) -> Inputs:
        value: Inputs = self._read("input")
        return value

    def _read(self, what: str) -> Any:
        if what not in self.snapshots:
            raise UserError(f"The trace does not record {what}; open it with {what}=True.")
        return self.snapshots[what].read(self.name)


def edges_of(output: Any, name: str) -> Any:
    """The gradient edges of a layer's tensors as they are now, in the structure of its output; None for all else.

    Later in-place operations do not change them.
    """

    def edge(part: Tensor) -> GradientEdge | None:
        _check_plain(part, name)
        try:
            return get_gradient_edge(part) if part.requires_grad else None
        except AssertionError:  # a view that was made under no_grad claims to need a gradient, and has none
            return None

    return mapped(output, edge, rest=lambda part: None)


def views_of(output: Any) -> list[tuple[Tensor, int]]:
    """The views among a value's tensors with their versions; an in-place operation on a view invalidates its edge."""
    return [(part.detach(), part._version) for part in tensors(output) if part.requires_grad and part._is_view()]


def assign_grads(calls: Sequence[Call], loss: Tensor, retain_graph: bool | None, create_graph: bool) -> None:
    """Compute the gradient of `loss` at the edges of all calls in one backward pass, and store it in the calls."""
    edges: dict[Any, GradientEdge] = {}

    def add(edge: GradientEdge) -> GradientEdge:
        # The output of a container is the output of its last layer, with the same edge.
        return edges.setdefault((edge.node, edge.output_nr), edge)

    for call in calls:
        mapped(call.edge, add, GradientEdge)
    inputs = list(edges.values())
    values = gradients(loss, inputs, retain_graph=retain_graph, create_graph=create_graph) if inputs else ()
    grads = dict(zip(edges, values, strict=True))
    for call in calls:
        call.grads = [mapped(call.edge, lambda edge: grads[edge.node, edge.output_nr], GradientEdge)]
