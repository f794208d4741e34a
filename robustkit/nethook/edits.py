"""Contexts that change the outputs of layers, and the gradients at layers; the network itself does not change.

A gradient edit applies to the forward passes inside the context and stays in their graphs, so the backward pass may
follow after the context. Gradients through other consumers of the same tensor, such as a skip connection, are not
edited.
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
from robustkit.nethook.structure import mapped, same_structure, tensors

At = Literal["output", "input"]


class GradEdit(Protocol):
    """Takes a gradient, and by keyword the layer's name and the index of its run; returns a gradient of its shape."""

    def __call__(self, grad: Tensor, /, *, name: str, call: int) -> Tensor: ...


class OutputEdit(Protocol):
    """Takes a layer's output, and by keyword its name and the index of its run; returns the same structure."""

    def __call__(self, output: Any, /, *, name: str, call: int) -> Any: ...


@contextmanager
def edit_grad(
    model: nn.Module, layers: Layers, fn: GradEdit, *, at: At = "output", every: bool = True
) -> Iterator[None]:
    """Apply `fn` to the gradients at chosen layers, for forward passes inside the context.

    Args:
        model: the network.
        layers: as for `select`.
        fn: `fn(grad, *, name, call) -> grad` for each tensor at the layer; must not write into its argument.
        at: "output" edits the gradient with respect to the layer's output, "input" the one with respect to its input.
        every: each layer must run and get a gradient; without it one is enough, as it always is for "*".

    Raises:
        UnfiredLayerError: at the end, if a layer never ran, or no tensor there required a gradient although gradients
            were on.
    """
    if at not in ("output", "input"):
        raise UserError(f"at must be 'output' or 'input', not {at!r}.")
    probe = _GradProbe(fn, at)
    # With at="input" the layer works on copies; its in-place writes must be copied back before any other hook runs.
    with hooked(model, layers, probe, strict=False, follows_grad=True, first=at == "input") as counter:
        yield
    every = every and layers != "*"
    counter.check_fired(every)
    without_grad = [name for name in counter.layers if name in probe.without_grad and name not in probe.reached]
    if without_grad and (every or not probe.reached):
        raise UnfiredLayerError(
            f"No gradient can reach the {at} of layer {without_grad[0]!r}: nothing before it requires one, or the "
            "model runs it under no_grad; give the model an input with requires_grad=True, or choose another layer."
        )


def scale_grad(
    model: nn.Module, layers: Layers, gamma: float, at: At = "output", *, every: bool = True
) -> AbstractContextManager[None]:
    """`edit_grad` that multiplies by `gamma`; with zero, no gradient passes the layers."""
    return edit_grad(model, layers, lambda grad, /, *, name, call: grad * gamma, at=at, every=every)


def clamp_grad(
    model: nn.Module,
    layers: Layers,
    min: float | None = None,  # noqa: A002  # torch's own words
    max: float | None = None,  # noqa: A002
    at: At = "input",
) -> AbstractContextManager[None]:
    """`edit_grad` that clamps gradients to [min, max]; by default those with respect to the layers' inputs."""
    if min is None and max is None:
        raise UserError("clamp_grad needs min, max or both.")
    return edit_grad(model, layers, lambda grad, /, *, name, call: grad.clamp(min, max), at=at)


@contextmanager
def edit_output(model: nn.Module, layers: Layers, fn: OutputEdit) -> Iterator[None]:
    """Replace the output of chosen layers by `fn(output, *, name, call)`, of the same structure and shapes.

    Where a checkpoint repeats an edited layer in backward, the backward pass must run inside the context: after it the
    layer is repeated without the edit. Torch then raises its CheckpointError; with use_reentrant=True nothing does, and
    the gradient is wrong.

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
        edited = checked(output, self.fn(output, name=visit.name, call=visit.call), visit.name)
        mark_for_checkpoints()
        return edited


def checked(output: Any, edited: Any, name: str) -> Any:
    """`edited`, if it has the structure and shapes of the layer's output.

    Raises:
        ShapeMismatchError: it has not.
    """
    if not same_structure(output, edited):
        raise ShapeMismatchError(
            f"The edit of layer {name!r} returned {_shape(edited)} for {_shape(output)}; return the same structure "
            "and shapes."
        )
    return edited


def mark_for_checkpoints() -> None:
    """Make a checkpoint fail that repeats this run without this call, because the edit's context is closed by then.

    It would continue with the unedited output, and its gradients would be wrong. A checkpoint compares how many tensors
    the two runs save for the backward pass; this call saves one.
    """
    with torch.enable_grad():
        torch.zeros((), device="cpu", requires_grad=True).exp()


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"{type(value).__name__} {[list(part.shape) for part in tensors(value)]}"


class _GradProbe:
    def __init__(self, fn: GradEdit, at: At) -> None:
        self.fn, self.at = fn, at
        self.reached: set[str] = set()
        self.without_grad: set[str] = set()

    def before(self, visit: Visit, inputs: Inputs) -> Inputs | None:
        if self.at == "output":
            visit.memo = [(part, part._version) for part in tensors(inputs) if not part.is_inference()]
            return None
        self._note(visit, inputs)
        copies: list[tuple[Tensor, Tensor, int]] = []
        visit.memo = copies

        def copied(part: Tensor) -> Tensor:
            if not part.requires_grad:
                return part
            copy = self._edited(visit, part.clone())
            copies.append((part, copy, copy._version))
            return copy

        return Inputs(mapped(inputs.args, copied), mapped(inputs.kwargs, copied)) if torch.is_grad_enabled() else None

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
        # If the layer wrote into its input, other consumers of the input hold the output, so it must not be copied.
        # If the layer returned its input unchanged, other consumers must not be edited, so it must be copied.
        written = any(part is original and part._version != version for original, version in visit.memo)
        return self._edited(visit, part if written else part.clone())

    def _note(self, visit: Visit, value: Any) -> None:
        if visit.grad_wanted:
            has_grad = torch.is_grad_enabled() and any(part.requires_grad for part in tensors(value))
            (self.reached if has_grad else self.without_grad).add(visit.name)

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


def _written_back(copies: list[tuple[Tensor, Tensor, int]], output: Any) -> Any:
    """The output, after in-place writes to copies of the input were repeated on the input, which the model may use."""
    for original, copy, version in copies or ():
        if copy._version != version:
            original.copy_(copy)
            output = _swapped(output, copy, original)
    return output


def _swapped(output: Any, copy: Tensor, original: Tensor) -> Any:
    return mapped(output, lambda part: original if part is copy else part)
