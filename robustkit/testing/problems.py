"""Small networks and images for checks; every number comes from a generator of its own."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from robustkit.classifier.batch_sizes import share_comparisons

# Radii that break some of the images of these networks and not all of them.
EPS = {
    "Linf": 0.03, "L2": 0.15, "L1": 0.8, "L0": 2.0, "patch": 2.0, "frame": 2.0,
    "spatial": 3.0, "rotation": 4.0, "translation": 0.3, "flow": 0.1, "color": 0.1,
    "recolor": 0.1, "recolor_rgb": 0.1, "lpips": 0.1,
}  # fmt: skip
_FIRST: dict[object, nn.Module] = {}  # the first network of each kind


class Problem(NamedTuple):
    """A network, and images that it classifies correctly."""

    model: nn.Module
    x: Tensor
    y: Tensor  # the network's own predictions


class SmallConvNet(nn.Module):
    """Two convolutions, each with BatchNorm, and a linear head."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(shape[0], 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        )  # fmt: skip
        height, width = (-(-side // 2) for side in shape[1:])
        self.head = nn.Linear(8 * height * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x).flatten(1))
        return logits


class SmallResidualNet(nn.Module):
    """The sum of an image's features and a branch over them, between two linear layers."""

    def __init__(self, body: nn.Module, branch: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.branch, self.head = body, branch, head

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        logits: Tensor = self.head((x + self.branch(x)).relu().flatten(1))
        return logits


class SmallTransformer(nn.Module):
    """A transformer block over six tokens of any image."""

    def __init__(self, values: int, classes: int, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(values, 6 * width), nn.Unflatten(1, (6, width)))
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        tokens = self.norm(x)
        x = x + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        logits: Tensor = self.head((x + self.mlp(self.norm(x))).mean(1))
        return logits


def images(count: int, *shape: int, seed: int = 0) -> Tensor:
    """`[count, *shape]` uniform in [0, 1]."""
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed), device="cpu")


def filled(model: nn.Module, seed: int = 0, gain: float = 1.0) -> nn.Module:
    """The model in eval mode with weights and statistics from a generator of its own."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            spread = gain / (weight[0].numel() if weight.dim() > 1 else 16) ** 0.5
            weight.copy_(torch.randn(weight.shape, generator=source, device="cpu") * spread)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                assert module.running_mean is not None
                assert module.running_var is not None
                module.running_mean.copy_(torch.randn(module.num_features, generator=source, device="cpu") * 0.2)
                module.running_var.copy_(torch.rand(module.num_features, generator=source, device="cpu") + 0.5)
                module.weight.copy_(torch.rand(module.num_features, generator=source, device="cpu") + 0.5)
    return model.eval()


def problem(kind: str, *shape: int, classes: int = 4, count: int = 12, seed: int = 0) -> Problem:
    """A fresh random network and images that it classifies as `y`.

    `kind` is "linear", "mlp" or "cnn"; "residual mlp", "residual cnn" or "attentive" for attacks that need such layers.
    """
    model, x = filled(_network(kind, shape, classes), seed), images(count, *shape, seed=seed)
    with torch.no_grad():
        logits = model(x)
        # Centred logits: a random network would else give nearly all images one class.
        last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        last.bias.sub_(logits.mean(0))
        # Comparing batch sizes anew for each copy took a fifth of the time of the checks.
        share_comparisons(model, _FIRST.setdefault((kind, shape, classes), model))
        return Problem(model, x, model(x).argmax(1))


def _network(kind: str, shape: tuple[int, ...], classes: int) -> nn.Module:
    values = int(torch.Size(shape).numel())
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(values, classes))
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(values, 16), nn.ReLU(), nn.Linear(16, classes))
    if kind == "cnn":
        return SmallConvNet(shape, classes)
    if kind == "residual mlp":
        body = nn.Sequential(nn.Flatten(), nn.Linear(values, 16), nn.ReLU())
        return SmallResidualNet(
            body, nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)), nn.Linear(16, classes)
        )
    if kind == "residual cnn":
        body = nn.Sequential(nn.Conv2d(shape[0], 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        branch = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        )
        return SmallResidualNet(body, branch, nn.Linear(8 * shape[1] * shape[2], classes))
    assert kind == "attentive"
    return SmallTransformer(values, classes)
