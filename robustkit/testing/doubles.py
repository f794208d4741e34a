"""Modules around a network that count, refuse or distort its passes."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from robustkit.models.preprocessing import Preprocessed
from robustkit.primitives.lpips_ball import Reading


class _Around(nn.Module):
    """Base of modules around one network, in its train or eval mode."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network: Callable[[Tensor], Tensor] = network
        self.train(network.training)


class Counting(_Around):
    """Counts the rows that go forward through a network, and backward to its input."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self.forwards = self.backwards = 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += len(x)
        if x.requires_grad:
            x = x * 1
            x.register_hook(self._count_backward)  # type: ignore[no-untyped-call]
        return self.network(x)

    def _count_backward(self, grad: Tensor) -> None:
        self.backwards += len(grad)


class _RefusingBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        raise RuntimeError("an attack that may not see gradients computed one")


class RefusingGradients(_Around):
    """Raises an error where its gradient is computed."""

    def forward(self, x: Tensor) -> Tensor:
        return self.network(_RefusingBackward.apply(x))


class ScalingInput(Preprocessed):
    """Multiplies pixels by a factor."""

    def __init__(self, network: nn.Module, factor: float) -> None:
        super().__init__()
        self.network, self.factor = network, factor

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x * self.factor)
        return logits


class DoubleLogits(_Around):
    """Returns logits in double precision."""

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x).double()


class NanGradients(_Around):
    """Finite logits, whose gradient is not a number."""

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x) + 0 * (x - x.detach()).sqrt().flatten(1).sum(1, keepdim=True)


class FailingLater(_Around):
    """Fails after some forwards, and in every later one."""

    def __init__(self, network: nn.Module, after: int) -> None:
        super().__init__(network)
        self.left = after

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("no more forwards")
        return self.network(x)


@dataclass(frozen=True)
class PixelFeatures:
    """Features that are the values of an image: the distance is that in L2.

    Args:
        size: how many values an image has.
    """

    size: int
    forwards: int = 0
    label: str = "pixels"

    def __call__(self, points: Tensor) -> Tensor:
        """The values of each point."""
        return points.flatten(1)

    def watching(self) -> AbstractContextManager[Reading]:
        """The same."""
        return nullcontext(self)
