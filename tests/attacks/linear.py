"""Linear classifiers, whose nearest error is known in closed form."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tests.problems import images

_DUAL = {"Linf": 1.0, "L2": 2.0, "L1": torch.inf}


class Linear(NamedTuple):
    model: nn.Module
    x: Tensor  # [N, D], far from the box's walls
    y: Tensor
    distance: dict[str, Tensor]  # [N] to the nearest error, by norm


def linear(classes: int, values: int = 20, count: int = 60, seed: int = 0) -> Linear:
    """Images whose every norm ball of radius `distance` fits into the box, and their exact distances."""
    source = torch.Generator().manual_seed(seed)
    weight = torch.randn(classes, values, generator=source)
    x = 0.5 + 0.05 * (images(count, values, seed=seed) - 0.5)
    layer = nn.Linear(values, classes)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(-(weight @ x.mean(0)))
        logits = layer(x)
    y = logits.argmax(1)
    gap = logits.gather(1, y.unsqueeze(1)) - logits
    slope = weight[y].unsqueeze(1) - weight.unsqueeze(0)  # [N, K, D]
    far = torch.nn.functional.one_hot(y, classes).bool()
    distance = {
        norm: (gap / slope.norm(p=dual, dim=2).clamp(min=1e-9)).masked_fill(far, torch.inf).amin(1)
        for norm, dual in _DUAL.items()
    }
    assert max(values.max() for values in distance.values()) < 0.4
    return Linear(nn.Sequential(layer), x, y, distance)


def scaled(made: Linear, factor: float) -> nn.Module:
    """The classifier with all logits multiplied."""
    layer = made.model[0]
    louder = nn.Linear(layer.in_features, layer.out_features)
    with torch.no_grad():
        louder.weight.copy_(layer.weight * factor)
        louder.bias.copy_(layer.bias * factor)
    return louder


class Sparse(NamedTuple):
    model: nn.Module
    x: Tensor  # [N, D] all over the box
    y: Tensor
    fewest: Tensor  # [N] float64, values that must change for an error


def sparse_linear(classes: int, values: int = 40, count: int = 40, seed: int = 0) -> Sparse:
    """A classifier of which one to six values must change; those that gain most, each as far as the box allows."""
    source = torch.Generator().manual_seed(seed)
    x = images(count, values, seed=seed)
    layer = nn.Linear(values, classes)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(classes, values, generator=source))
        layer.bias.copy_(-(layer.weight @ x.mean(0)))
        logits = layer(x)
        y = logits.argmax(1)
        slope = layer.weight.unsqueeze(0) - layer.weight[y].unsqueeze(1)  # [N, K, D]
        gain = torch.maximum(slope * (1 - x).unsqueeze(1), -slope * x.unsqueeze(1))
        most = gain.sort(2, descending=True).values.cumsum(2)
        gap = (logits.gather(1, y.unsqueeze(1)) - logits).unsqueeze(2)
        fewest = ((most <= gap).sum(2) + 1).masked_fill(nn.functional.one_hot(y, classes).bool(), values)
    return Sparse(nn.Sequential(layer), x, y, fewest.amin(1).double())
