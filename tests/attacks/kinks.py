"""What attacks that smooth kinks are tested with."""

import pytest
import torch
from torch import Tensor, nn

from robustkit.nethook import soft_kinks


def dead_end() -> nn.Module:
    """Two classes; a wrong one wins where the values' sum is above 5, and up to 4.8 nothing shows it."""
    net = nn.Sequential(nn.Linear(8, 1), nn.ReLU(), nn.Linear(1, 2))
    with torch.no_grad():
        net[0].weight.fill_(1)
        net[0].bias.fill_(-4.8)
        net[2].weight.copy_(torch.tensor([[0.0], [10.0]]))
        net[2].bias.copy_(torch.tensor([2.0, 0.0]))
    return net.eval()


def noted_widths(monkeypatch: pytest.MonkeyPatch, module: str) -> list[tuple[float, float]]:
    """A list that gets the width and the temperature of the first row whenever a module of attacks softens kinks."""
    seen: list[tuple[float, float]] = []

    def noted(activations: Tensor, pooling: Tensor) -> object:
        seen.append((float(activations[0]), float(pooling[0])))
        return soft_kinks(activations, pooling)

    monkeypatch.setattr(f"robustkit.attacks.gradient.{module}.soft_kinks", noted)
    return seen
