"""Straight-through gradients for step functions in a forward method, where no layer can be named for BPDA.

Bengio et al. 2013, arXiv:1308.3432.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from robustkit.models.preprocessing import Preprocessed

from .lines import STEPS, TO_NUMPY, OpSite, name_of

_CUTS = ("detach", "data")
_INDICES = ("argmax", "argmin", "bucketize", "searchsorted")  # whole numbers carry no gradient


class StraightThroughNetwork(Preprocessed):
    """A network in which rounding, sign, `detach` and `no_grad` have the gradient of the identity.

    With gradients off it is the network itself, so verdicts are about the network. Comparisons and custom autograd
    functions keep their own gradients.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Any:
        """The output of the network."""
        if not torch.is_grad_enabled():
            return self.network(x)
        with _StraightThroughMode():
            return self.network(x)


def passes_straight_through(sites: Sequence[OpSite]) -> bool:
    """Whether `StraightThroughNetwork` passes gradients through one of these operations; none comes back from numpy."""
    if any(site.op in TO_NUMPY for site in sites):
        return False
    passing = {*STEPS, *_CUTS} - {*_INDICES}
    return any(site.op in passing or site.without_gradients for site in sites)


class _StraightThroughMode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = name_of(func)
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if first is None or not first.requires_grad:
            return func(*args, **(kwargs or {}))
        if name in _CUTS:
            return first
        if name in TO_NUMPY:  # its `detach` was undone above
            return func(first.detach(), *args[1:], **(kwargs or {}))
        if not torch.is_grad_enabled():
            with torch.enable_grad():
                return func(*args, **(kwargs or {}))
        output = func(*args, **(kwargs or {}))
        step = name in STEPS and isinstance(output, Tensor) and output.is_floating_point()
        return first + (output - first).detach() if step and output.shape == first.shape else output
