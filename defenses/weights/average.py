"""An exponential moving average of the weights, in storage of its own."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Average:
    """An exponential moving average of a network's weights.

    Args:
        network: as it is before the first step.
        decay: weight of the old average at each step; smaller in the first steps, `(1 + t) / (10 + t)`, so that the
            start has little weight.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.weights = {name: weight.detach().clone() for name, weight in network.named_parameters()}

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Add the weights after a step to the average."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, weight in network.named_parameters():
            self.weights[name].lerp_(weight.detach(), 1 - decay)

    @torch.no_grad()
    def copy_to(self, network: nn.Module) -> None:
        """Write the average into the weights of a network; its buffers stay."""
        for name, weight in network.named_parameters():
            weight.copy_(self.weights[name])

    def load(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Continue from a saved average, on any device."""
        for name, own in self.weights.items():
            own.copy_(weights[name])
        self.steps = steps
