"""An exponential moving average of the weights, in storage of its own."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Average:
    """The average of a network's weights over the steps so far.

    Args:
        network: as it is before the first step.
        decay: share of the average that a step keeps. The first steps keep less, `(1 + t) / (10 + t)`, so that the
            start is soon forgotten.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.steps = 0
        self.weights = {name: weight.detach().clone() for name, weight in network.named_parameters()}

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Take in the weights after a step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, weight in network.named_parameters():
            self.weights[name].lerp_(weight.detach(), 1 - decay)

    @torch.no_grad()
    def into(self, network: nn.Module) -> None:
        """Write the average into a network of the same shape; its buffers stay its own."""
        for name, weight in network.named_parameters():
            weight.copy_(self.weights[name])

    def load(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Go on from an average that was kept, wherever it lies."""
        for name, own in self.weights.items():
            own.copy_(weights[name])
        self.steps = steps
