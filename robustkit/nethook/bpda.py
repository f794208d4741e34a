"""BPDA: a layer keeps its exact output and gets the gradient of a smooth replacement function.

Athalye, Carlini & Wagner 2018, arXiv:1802.00420, section 4.1. Ours differs: a hook, so the defense's code does not
change.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.errors import UserError
from robustkit.nethook.errors import ShapeMismatchError
from robustkit.nethook.hooked import Inputs, Visit, hooked
from robustkit.nethook.names import Layers
from robustkit.nethook.structure import mapped, tensors


@contextmanager
def bpda(model: nn.Module, layers: Layers, replacement: Callable[..., Tensor] | None = None) -> Iterator[None]:
    """Give chosen layers the gradient of `replacement`; their outputs keep their exact values.

    Also works if the model runs the layer under `torch.no_grad`, or if the layer writes into its input.

    Args:
        model: the network.
        layers: as for `select`; each must return one tensor.
        replacement: takes the layer's arguments and returns a tensor of its output's shape; None is the identity.

    Raises:
        UnfiredLayerError: at the end, if a layer never ran.
        ShapeMismatchError: the replacement's output has another shape than the layer's.
    """
    with hooked(model, layers, _ReplacedGradient(replacement), follows_grad=True):
        yield


class _ReplacedGradient:
    def __init__(self, replacement: Callable[..., Tensor] | None) -> None:
        self.replacement = replacement

    def before(self, visit: Visit, inputs: Inputs) -> None:
        if visit.grad_wanted:
            # Before the layer runs, and on copies, because the layer may write into its input.
            with torch.enable_grad():
                visit.memo = self._smooth_output(visit, Inputs(*(mapped(part, Tensor.clone) for part in inputs)))

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> Tensor | None:
        if not visit.grad_wanted:
            return None
        smooth = visit.memo
        if not isinstance(output, Tensor):
            raise UserError(
                f"Layer {visit.name!r} returns {type(output).__name__}; bpda needs a layer that returns one tensor."
            )
        if not isinstance(smooth, Tensor) or smooth.shape != output.shape:
            returned = list(smooth.shape) if isinstance(smooth, Tensor) else type(smooth).__name__
            raise ShapeMismatchError(
                f"The replacement function of layer {visit.name!r} returned {returned}, the layer "
                f"{list(output.shape)}; give a function that returns the layer's shape."
            )
        with torch.enable_grad():
            return with_gradient_of(smooth.to(output.dtype), output)

    def _smooth_output(self, visit: Visit, inputs: Inputs) -> Any:
        if self.replacement is not None:
            return self.replacement(*inputs.args, **inputs.kwargs)
        (first, *more) = [*tensors(inputs), None]
        if first is None or more != [None]:
            raise UserError(f"Layer {visit.name!r} takes several tensors; give bpda a function that takes them too.")
        return first


def with_gradient_of(smooth: Tensor, exact: Tensor) -> Tensor:
    """The value of `exact`, bit for bit, with the gradient of `smooth`, a tensor of its shape."""
    return _ExactValue.apply(smooth, exact)  # type: ignore[no-any-return]


class _ExactValue(torch.autograd.Function):
    """The value of `exact` with the gradient of `smooth`; adding their difference to `smooth` would round the value."""

    @staticmethod
    def forward(ctx: Any, smooth: Tensor, exact: Tensor) -> Tensor:
        return exact.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, None]:
        return grads[0], None
