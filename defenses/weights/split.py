"""BatchNorm in two branches, one for clean images and one for adversarial ones, while a training lasts.

Xie et al. 2020, arXiv:1911.09665. Both the running statistics and the learnable weights are separate: Zhang et al.
2024, arXiv:2403.19150, find that the separate weights matter most. The layer itself is the adversarial branch and keeps
its names; the clean branch is a layer called `clean` inside it, removed after the training. Ours differs: the
adversarial branch is kept. The paper keeps the clean one, since its aim is clean accuracy.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeGuard

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .batchnorm import norms_of


class _Split(nn.Module):
    """A BatchNorm with a second one inside, which is used instead while `uses_clean` is True."""

    clean: nn.Module
    uses_clean: bool

    def forward(self, x: Tensor) -> Tensor:
        """The output of the active branch."""
        output: Tensor = self.clean(x) if self.uses_clean else super().forward(x)
        return output


@contextmanager
def split(network: nn.Module) -> Iterator[None]:
    """Every BatchNorm of the network in two branches while the context lasts; both start as copies of the layer."""
    before: list[tuple[_BatchNorm, Any]] = [(norm, type(norm)) for norm in norms_of(network)]
    try:
        for norm, kind in before:
            branch = copy.deepcopy(norm)
            norm.__class__ = _split_kind(kind)
            norm.add_module("clean", branch)
            norm.uses_clean = False  # type: ignore[assignment]
        yield
    finally:
        for norm, kind in before:
            norm.__class__ = kind
            norm._modules.pop("clean", None)
            vars(norm).pop("uses_clean", None)


@contextmanager
def clean_branch(network: nn.Module) -> Iterator[None]:
    """The clean branch is used while the context lasts; no effect where BatchNorm is not split."""
    parts = [module for module in network.modules() if isinstance(module, _Split)]
    for part in parts:
        part.uses_clean = True
    try:
        yield
    finally:
        for part in parts:
            part.uses_clean = False


def is_standard(module: nn.Module) -> TypeGuard[_BatchNorm]:
    """Whether a module is torch's BatchNorm, split or not, with torch's own forward."""
    return isinstance(module, _BatchNorm) and type(module).forward in (_BatchNorm.forward, _Split.forward)


@cache
def _split_kind(kind: Any) -> Any:
    attributes = {"__module__": kind.__module__, "__doc__": f"{kind.__name__} in two branches."}
    return type(f"Split{kind.__name__}", (_Split, kind), attributes)
