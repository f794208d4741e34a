"""Networks with preprocessing before them. Layer names, hooks and surrogate gradients are about the network inside."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from robustkit.errors import UserError


class Preprocessed(nn.Module):
    """A module that preprocesses its input, runs its network and returns the network's output."""

    network: nn.Module


def network_in(model: nn.Module) -> nn.Module:
    """The network itself, without the preprocessing before it."""
    while isinstance(model, Preprocessed):
        model = model.network
    return model


class Normalised(Preprocessed):
    """A network with the normalisation of its training before it: `(x - mean) / std` per channel."""

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or any(not value > 0 for value in std):
            raise UserError("mean and std need one number per channel each, and every std must be above zero.")
        self.network = network
        self.mean: Tensor
        self.std: Tensor
        device, self.dtype = home(network)
        self.register_buffer("mean", torch.tensor(mean, device=device).reshape(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, device=device).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of pixels `[B, C, H, W]`."""
        return self.network(((x - self.mean) / self.std).to(self.dtype))  # type: ignore[no-any-return]


def home(model: nn.Module) -> tuple[torch.device, torch.dtype]:
    """Device and floating point type of a model's weights."""
    weights = [weight for weight in model.parameters() if weight.is_floating_point()]
    return (weights[0].device, weights[0].dtype) if weights else (torch.device("cpu"), torch.float32)
