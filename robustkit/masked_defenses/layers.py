"""The layers that mask gradients, each in one way."""

from typing import Any

import torch
from torch import Tensor, nn


class Quantise(nn.Module):
    """Values rounded to multiples of `1 / levels`, as JPEG-like input transformations do; the derivative is zero."""

    def __init__(self, levels: int = 8) -> None:
        super().__init__()
        self.levels = levels

    def forward(self, x: Tensor) -> Tensor:
        """Rounded values."""
        return torch.round(x * self.levels) / self.levels


class Binarise(nn.Module):
    """1 where a value is above the threshold, 0 elsewhere."""

    def __init__(self, threshold: float = 0.5) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        """Zeros and ones."""
        return (x > self.threshold).to(x)


class Detach(nn.Module):
    """The identity, detached from the graph."""

    def forward(self, x: Tensor) -> Tensor:
        """The same values without a graph."""
        return x.detach()


class _ZeroGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.zeros_like(grad)


class ZeroBackward(nn.Module):
    """The identity, whose backward pass returns zeros."""

    def forward(self, x: Tensor) -> Tensor:
        """The same values."""
        return _ZeroGradient.apply(x)  # type: ignore[no-any-return]


class KWinners(nn.Module):
    """Keeps an image's largest activations, zero elsewhere: k-WTA, Xiao, Zhong & Zheng 2020, arXiv:1905.10510."""

    def __init__(self, share: float = 0.1) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """The largest activations, zero elsewhere."""
        flat = x.flatten(1)
        least = flat.topk(max(1, round(self.share * flat.shape[1])), dim=1).values[:, -1:]
        return torch.where(flat >= least, flat, torch.zeros_like(flat)).reshape(x.shape)


class SteepSigmoid(nn.Module):
    """`sigmoid(slope * (x - centre))`: nearly a step function, with almost no gradient away from the centre."""

    def __init__(self, slope: float = 300.0, centre: float = 0.5) -> None:
        super().__init__()
        self.slope, self.centre = slope, centre

    def forward(self, x: Tensor) -> Tensor:
        """Values near zero or one."""
        return torch.sigmoid(self.slope * (x - self.centre))


class Temperature(nn.Module):
    """Logits times a large number: but cross-entropy underflows (as in defensive distillation)."""

    def __init__(self, factor: float = 100.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, logits: Tensor) -> Tensor:
        """Scaled logits."""
        return logits * self.factor


class NoiseLayer(nn.Module):
    """New Gaussian noise at every call, also in eval mode."""

    def __init__(self, spread: float = 0.1) -> None:
        super().__init__()
        self.spread = spread

    def forward(self, x: Tensor) -> Tensor:
        """Noisy values."""
        return x + self.spread * torch.randn_like(x)
