"""Small networks whose traces are known."""

import torch
from torch import Tensor, nn

from tests.problems import filled, images


class Twice(nn.Module):
    """One ReLU that is called twice, in place as torchvision does it."""

    def __init__(self, inplace: bool = True) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.relu = nn.ReLU(inplace=inplace)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.relu(self.second(self.relu(self.first(x.flatten(1))))))


class Aside(nn.Module):
    """Has a layer that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x.flatten(1))


class Breaks(nn.Module):
    """Raises at its n-th call."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after
        self.counted = True

    def forward(self, x: Tensor) -> Tensor:
        if self.counted:
            self.left -= 1
        if self.left < 0:
            raise RuntimeError("injected")
        return x


def built(model: nn.Module, *shape: int, count: int = 12, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """The model filled in float64, images, points near them, and as labels what the model says about the images."""
    filled(model, seed).double()
    x = images(count, *shape, seed=seed).double()
    perturbed = (x + 0.2 * (images(count, *shape, seed=seed + 1).double() - 0.5)).clamp(0, 1)
    with torch.no_grad():
        torch.manual_seed(0)
        return model, x, perturbed, model(x).argmax(1)


class Function(nn.Module):
    """A layer that applies a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Fork(nn.Module):
    """Runs its two layers in another order for bright images."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.other(self.one(x)) if bool(x.mean() < 0.5) else self.one(self.other(x)))


def linear_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 9), nn.Linear(9, 5), nn.Linear(5, 4))
