"""Contexts that change what layers return and the gradients that pass them; the network itself is left alone.

A gradient edit belongs to the forward passes made inside the context, and stays with their graphs: the backward pass
may come later. What flows through other consumers of the same tensor, such as a skip connection, is not edited.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook.errors import ShapeMismatchError, UnfiredLayerError
from robustkit.nethook.hooked import Inputs, Visit, hooked
from robustkit.nethook.names import Layers
from robustkit.nethook.structure import alike, mapped, tensors

At = Literal["output", "input"]


class GradEdit(Protocol):
    """Takes a gradient, and the layer's name and the number of its run, by keyword; returns another of its shape."""

    def __call__(self, grad: Tensor, /, *, name: str, call: int) -> Tensor: ...


class OutputEdit(Protocol):
    """Takes what a layer returned, its name and the number of its run, by keyword; returns the same structure."""

    def __call__(self, output: Any, /, *, name: str, call: int) -> Any: ...


@contextmanager
def edit_grad(model: nn.Module, layers: Layers, fn: GradEdit, *, at: At = "output") -> Iterator[None]:
    """Pass gradients that flow back through chosen layers through `fn`, for forward passes inside the context.

    Args:
        model: the network.
        layers: as for `select`.
        fn: `fn(grad, *, name, call) -> grad` for each tensor at the layer; must not write into what it gets.
        at: "output" edits what flows into the layer from behind, "input" what flows on out of it.

    Raises:
        UnfiredLayerError: at the end, if a layer never ran, or no tensor there ever had a gradient though gradients
            were on.
    """
    if at not in ("output", "input"):
        raise UserError(f"at must be 'output' or 'input', not {at!r}.")
    probe = _GradProbe(fn, at)
    # What private copies of the input lead to is put right before anybody looks at it, the innermost copy first.
    with hooked(model, layers, probe, follows_grad=True, first=at == "input") as watch:
        yield
    blind = [name for name in watch.layers if name in probe.blind and name not in probe.reached]
    if blind and (layers != "*" or not probe.reached):
        raise UnfiredLayerError(
            f"No gradient can reach the {at} of layer {blind[0]!r}: nothing before it requires one, or the model runs "
            "it under no_grad; give the model an input with requires_grad=True, or choose another layer."
        )


def scale_grad(model: nn.Module, layers: Layers, gamma: float, at: At = "output") -> AbstractContextManager[None]:
    """`edit_grad` that multiplies by `gamma`: zero cuts the way through the layers."""
    return edit_grad(model, layers, lambda grad, /, *, name, call: grad * gamma, at=at)


def clamp_grad(
    model: nn.Module,
    layers: Layers,
    min: float | None = None,  # noqa: A002  # torch's own words
    max: float | None = None,  # noqa: A002
    at: At = "input",
) -> AbstractContextManager[None]:
    """`edit_grad` that cuts gradients off below `min` and above `max`; by default those that flow out of the layers."""
    if min is None and max is None:
        raise UserError("clamp_grad needs min, max or both.")
    return edit_grad(model, layers, lambda grad, /, *, name, call: grad.clamp(min, max), at=at)


@contextmanager
def edit_output(model: nn.Module, layers: Layers, fn: OutputEdit) -> Iterator[None]:
    """Replace what chosen layers return by `fn(output, *, name, call)`, of the same structure and shapes.

    Raises:
        UnfiredLayerError: at the end, if a layer never ran.
        ShapeMismatchError: `fn` returned another shape or structure, or nothing.
    """
    with hooked(model, layers, _OutputProbe(fn)):
        yield


class _OutputProbe:
    def __init__(self, fn: OutputEdit) -> None:
        self.fn = fn

    def before(self, visit: Visit, inputs: Inputs) -> None:
        return None

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> Any:
        return checked(output, self.fn(output, name=visit.name, call=visit.call), visit.name)


def checked(output: Any, edited: Any, name: str) -> Any:
    """What an edit returned, if it may stand for the layer's own output.

    Raises:
        ShapeMismatchError: it may not.
    """
    if not alike(output, edited):
        raise ShapeMismatchError(
            f"The edit of layer {name!r} returned {_shape(edited)} for {_shape(output)}; return the same structure "
            "and shapes."
        )
    return edited


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"{type(value).__name__} {[list(part.shape) for part in tensors(value)]}"


class _GradProbe:
    def __init__(self, fn: GradEdit, at: At) -> None:
        self.fn, self.at = fn, at
        self.reached: set[str] = set()
        self.blind: set[str] = set()

    def before(self, visit: Visit, inputs: Inputs) -> Inputs | None:
        if self.at == "output":
            visit.memo = [(part, part._version) for part in tensors(inputs) if not part.is_inference()]
            return None
        self._note(visit, inputs)
        pairs: list[tuple[Tensor, Tensor, int]] = []
        visit.memo = pairs

        def private(part: Tensor) -> Tensor:
            if not part.requires_grad:
                return part
            own = self._edited(visit, part.clone())
            pairs.append((part, own, own._version))
            return own

        return Inputs(mapped(inputs.args, private), mapped(inputs.kwargs, private)) if torch.is_grad_enabled() else None

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> Any:
        if self.at == "output":
            self._note(visit, output)
            if not torch.is_grad_enabled():
                return None
            return mapped(output, lambda part: self._at_output(visit, part))
        return _written_back(visit.memo, output)

    def _at_output(self, visit: Visit, part: Tensor) -> Tensor:
        if not part.requires_grad:
            return part
        # A layer that wrote into its input: whoever holds that input holds the output, so a copy would be passed by.
        # A layer that returns its input untouched: the other consumers of it are none of our business.
        written = any(part is given and part._version != version for given, version in visit.memo)
        return self._edited(visit, part if written else part.clone())

    def _note(self, visit: Visit, value: Any) -> None:
        if visit.grad_wanted:
            alive = torch.is_grad_enabled() and any(part.requires_grad for part in tensors(value))
            (self.reached if alive else self.blind).add(visit.name)

    def _edited(self, visit: Visit, part: Tensor) -> Tensor:
        name, call, fn = visit.name, visit.call, self.fn

        def edit(grad: Tensor) -> Tensor:
            version = grad._version
            new = fn(grad, name=name, call=call)
            if not isinstance(new, Tensor) or new.shape != grad.shape:
                raise ShapeMismatchError(
                    f"The gradient edit of layer {name!r} returned {_shape(new)} for {_shape(grad)}; return a tensor "
                    "of the same shape."
                )
            if grad._version != version:
                raise UserError(f"The gradient edit of layer {name!r} wrote into its argument; return a new tensor.")
            return new

        part.register_hook(edit)  # type: ignore[no-untyped-call]
        return part


def _written_back(pairs: list[tuple[Tensor, Tensor, int]], output: Any) -> Any:
    """The layer's effect on its own input, for layers that write into it: the model may go on with that input."""
    for given, own, version in pairs or ():
        if own._version != version:
            given.copy_(own)
            output = _swapped(output, own, given)
    return output


def _swapped(output: Any, own: Tensor, given: Tensor) -> Any:
    return mapped(output, lambda part: given if part is own else part)
