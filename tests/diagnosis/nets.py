"""Networks that the tests of this folder share, trained once for all of them."""

import copy
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit import attack, load_dataset, masked_defenses
from robustkit.diagnosis import Diagnosis, diagnose
from robustkit.primitives import registry

torch.set_num_threads(1)

EPS = 0.2  # breaks nearly every image of the undefended network


class Images(NamedTuple):
    x: Tensor
    y: Tensor


@cache
def images(count: int = 32) -> Images:
    """Test images of digits, which no network here was trained on."""
    return Images(*load_dataset("digits").batch(range(count)))


def diagnosed(model: nn.Module, count: int = 8, *, prove: bool = False, **options) -> Diagnosis:
    """The diagnosis of a model with a few test images."""
    x, y = images(count)
    return diagnose(model, x, y, **{"eps": EPS, "prove": prove, **options})


def causes(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return [(row.layer, row.verdict) for row in diagnosis.causes]


def remedies(diagnosis: Diagnosis) -> set[str]:
    return {remedy.kind for remedy in diagnosis.prescription}


@cache
def _base() -> nn.Module:
    return masked_defenses.base_network()


def base() -> nn.Module:
    """An ordinary trained network."""
    return copy.deepcopy(_base())


@cache
def _defended(name: str) -> nn.Module:
    return masked_defenses.build(name, _base())


def defended(name: str) -> nn.Module:
    """The same network with a defense that masks gradients."""
    return copy.deepcopy(_defended(name))


def hardened() -> nn.Module:
    """The same network after a few epochs of adversarial training with PGD."""
    model, (x, y) = base(), load_dataset("digits", "train").batch(range(1099))
    optimiser, shuffle = torch.optim.Adam(model.parameters(), 2e-3), torch.Generator().manual_seed(0)
    for _ in range(3):
        for rows in torch.randperm(len(y), generator=shuffle).split(64):
            near = x[rows]
            for _ in range(3):
                near = near.detach().requires_grad_()
                grad = torch.autograd.grad(F.cross_entropy(model(near), y[rows]), near)[0]
                near = (x[rows] + (near + 0.1 * grad.sign() - x[rows]).clamp(-EPS, EPS)).clamp(0, 1)
            optimiser.zero_grad()
            F.cross_entropy(model(near.detach()), y[rows]).backward()
            optimiser.step()
    return model.eval()


@cache
def undefended_accuracy() -> float:
    """Robust accuracy of the ordinary network."""
    x, y = images()
    return attack(base(), x, y, registry.build("pgd:steps=20", "Linf", EPS)).robust_accuracy


class Lambda(nn.Module):
    """A layer that applies a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values, **more):
        return self.function(*values, **more)


class Rounding(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x * 8) / 8


class Inline(nn.Module):
    """An ordinary network behind one operation in its own forward."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body, self.kind = base(), kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "round":
            x = torch.round(x * 8) / 8
        if self.kind == "detach":
            x = x.detach()
        if self.kind == "no_grad":
            with torch.no_grad():
                x = x * 1.0
        if self.kind == "compare":
            x = (x > 0.5).float()
        if self.kind == "threshold":
            x = x * (x > 0.05)
        if self.kind == "numpy":
            x = torch.from_numpy(x.detach().numpy())
        if self.kind == "noise":
            x = x + 0.1 * torch.randn_like(x)
        return self.body(x)


class CutOff(nn.Module):
    """An ordinary network whose logits have no graph, not even to its weights."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.body, self.kind = base(), kind

    def forward(self, x: Tensor) -> Tensor:
        with torch.inference_mode(self.kind == "inference_mode"), torch.set_grad_enabled(self.kind == "detach"):
            logits = self.body(x)
        return logits.detach()


class EightBits(nn.Module):
    """An ordinary network with a layer whose output is float8; its logits are, too, if asked."""

    class Coarse(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.to(torch.float8_e4m3fn)

    class Fine(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.float()

    def __init__(self, *, logits: bool) -> None:
        super().__init__()
        self.coarse, self.fine, self.body = self.Coarse(), self.Fine(), base()
        self.logits = logits

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(self.fine(self.coarse(x)))
        return y.detach().to(torch.float8_e4m3fn) if self.logits else y


class Deep(nn.Module):
    """The same two levels down."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = nn.Sequential(Inline(kind))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 1.0
