"""BatchNorm in two branches, one for clean images and one for adversarial ones, while a training lasts.

Xie et al. 2020, arXiv:1911.09665. Both the running statistics and the learnable weights are separate: Zhang et al.
2024, arXiv:2403.19150, find that it is the weights that do the work. The layer itself is the adversarial branch, under
its own names; the clean one is a layer called `clean` inside it, which is gone after the training. So what is kept is
the adversarial branch, the one that was attacked. (The paper keeps the clean one, since clean accuracy is its aim.)
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
    """A BatchNorm with a second one inside, which answers in its place while `asks_clean` holds."""

    clean: nn.Module
    asks_clean: bool

    def forward(self, x: Tensor) -> Tensor:
        """Of the branch whose turn it is."""
        answer: Tensor = self.clean(x) if self.asks_clean else super().forward(x)
        return answer


@contextmanager
def split(network: nn.Module) -> Iterator[None]:
    """Every BatchNorm of the network in two branches while the context lasts; both begin as the layer is."""
    before: list[tuple[_BatchNorm, Any]] = [(norm, type(norm)) for norm in norms_of(network)]
    try:
        for norm, kind in before:
            branch = copy.deepcopy(norm)
            norm.__class__ = _split_kind(kind)
            norm.add_module("clean", branch)
            norm.asks_clean = False  # type: ignore[assignment]
        yield
    finally:
        for norm, kind in before:
            norm.__class__ = kind
            norm._modules.pop("clean", None)
            vars(norm).pop("asks_clean", None)


@contextmanager
def clean_branch(network: nn.Module) -> Iterator[None]:
    """The clean branch answers while the context lasts; nothing changes where BatchNorm is not split."""
    parts = [module for module in network.modules() if isinstance(module, _Split)]
    for part in parts:
        part.asks_clean = True
    try:
        yield
    finally:
        for part in parts:
            part.asks_clean = False


def plain(module: nn.Module) -> TypeGuard[_BatchNorm]:
    """Whether it is torch's BatchNorm, split or not, with nothing added to what it computes."""
    return isinstance(module, _BatchNorm) and type(module).forward in (_BatchNorm.forward, _Split.forward)


@cache
def _split_kind(kind: Any) -> Any:
    words = {"__module__": kind.__module__, "__doc__": f"{kind.__name__} in two branches."}
    return type(f"Split{kind.__name__}", (_Split, kind), words)
