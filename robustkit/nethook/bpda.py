"""BPDA: a layer computes what it computes, and gradients pass it as if it were a smooth surrogate.

Athalye, Carlini & Wagner 2018, arXiv:1802.00420, section 4.1. As a hook: no change to the defence, its value exact.
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
def bpda(model: nn.Module, layers: Layers, surrogate: Callable[..., Tensor] | None = None) -> Iterator[None]:
    """Send gradients through `surrogate` instead of chosen layers, whose outputs keep their exact values.

    Works also where the layer runs under `torch.no_grad` inside the model, or writes into its input.

    Args:
        model: the network.
        layers: as for `select`; each must return one tensor.
        surrogate: takes what the layer takes and returns its shape; None is the identity.

    Raises:
        UnfiredLayerError: at the end, if a layer never ran.
        ShapeMismatchError: the surrogate's output has another shape than the layer's.
    """
    with hooked(model, layers, _Surrogate(surrogate), follows_grad=True):
        yield


class _Surrogate:
    def __init__(self, surrogate: Callable[..., Tensor] | None) -> None:
        self.surrogate = surrogate

    def before(self, visit: Visit, inputs: Inputs) -> None:
        if visit.grad_wanted:
            # Asked before the layer runs, and on copies: the layer may write into its input.
            with torch.enable_grad():
                visit.memo = self._smooth(visit, Inputs(*(mapped(part, Tensor.clone) for part in inputs)))

    def after(self, visit: Visit, inputs: Inputs, output: Any) -> Tensor | None:
        if not visit.grad_wanted:
            return None
        smooth = visit.memo
        if not isinstance(output, Tensor):
            raise UserError(
                f"Layer {visit.name!r} returns {type(output).__name__}; bpda needs a layer that returns one tensor."
            )
        if not isinstance(smooth, Tensor) or smooth.shape != output.shape:
            given = list(smooth.shape) if isinstance(smooth, Tensor) else type(smooth).__name__
            raise ShapeMismatchError(
                f"The surrogate of layer {visit.name!r} returned {given}, the layer {list(output.shape)}; give a "
                "surrogate of the layer's own shape."
            )
        with torch.enable_grad():
            return _value_of(smooth.to(output.dtype), output)

    def _smooth(self, visit: Visit, inputs: Inputs) -> Any:
        if self.surrogate is not None:
            return self.surrogate(*inputs.args, **inputs.kwargs)
        (first, *more) = [*tensors(inputs), None]
        if first is None or more != [None]:
            raise UserError(f"Layer {visit.name!r} takes several tensors; give bpda a surrogate that takes them too.")
        return first


def _value_of(smooth: Tensor, exact: Tensor) -> Tensor:
    return _Straight.apply(smooth, exact)  # type: ignore[no-any-return]


class _Straight(torch.autograd.Function):
    """The value of the second, the gradient of the first; adding differences would round the value."""

    @staticmethod
    def forward(ctx: Any, smooth: Tensor, exact: Tensor) -> Tensor:
        return exact.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, None]:
        return grads[0], None
