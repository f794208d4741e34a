"""Hooks on the gradients of parameters.

A zero gradient does not freeze a parameter: weight decay and momentum still move it. `requires_grad_(False)` freezes.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from robustkit.nethook.errors import UnfiredLayerError
from robustkit.nethook.names import Names, select_parameters


@contextmanager
def zero_grad_of(model: nn.Module, params: Names = "*.bias") -> Iterator[None]:
    """Set the gradients of chosen parameters to zero, in backward passes inside the context.

    Args:
        model: the network.
        params: a dotted name, a glob, a compiled regular expression for the whole name, or an iterable of these.

    Raises:
        ParameterNotFoundError: one of them matches no parameter.
        UnfiredLayerError: at the end, if no gradient of any of them was computed inside the context.
    """
    chosen = select_parameters(model, params)
    fired: set[str] = set()
    with ExitStack() as stack:
        for name, parameter in chosen.items():
            if parameter.requires_grad:
                stack.enter_context(parameter.register_hook(_ZeroHook(name, fired)))  # type: ignore[no-untyped-call]
        yield
    if not fired:
        raise UnfiredLayerError(
            f"No gradient of {next(iter(chosen))!r}{' or the others' if len(chosen) > 1 else ''} was computed inside "
            "the context; run backward() before you leave it, for parameters that require a gradient."
        )


class _ZeroHook:
    """Replaces a gradient by zeros; a class, so that `leftover_hooks` can name it."""

    def __init__(self, name: str, fired: set[str]) -> None:
        self.name, self.fired = name, fired

    def __call__(self, grad: Tensor) -> Tensor:
        self.fired.add(self.name)
        return torch.zeros_like(grad)
