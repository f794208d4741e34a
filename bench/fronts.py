"""Does the default see what stands in front of a network and hides the image from its gradients?

The network of the masked defenses, and with --zoo one that was trained against attacks, behind functions whose gradient
is exactly zero at some values of the image, turns too fast to lead anywhere, is the opposite of the slope over the
radius, or was falsified: what `rk-7`, the default and AutoAttack leave standing, and whether the run warns.

    python bench/fronts.py [--zoo DIR] [--only L2,waves] [--images 100]
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from subjects import zoo
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from robustkit import evaluate, load_dataset
from robustkit.masked_defenses import base_network


def wave(size: float, pace: float) -> Callable[[Tensor], Tensor]:
    """Adds a wave to each value of the image."""
    return lambda x: x + size * torch.sin(pace * x)


def steps(width: float, slope: float) -> Callable[[Tensor], Tensor]:
    """Steps of a width, on each of which the slope is another than that of the whole."""

    def front(x: Tensor) -> Tensor:
        middle = torch.round(x / width) * width
        return middle + slope * (x - middle)

    return front


def some_of(x: Tensor, share: float) -> Tensor:
    """`[*S]` bool, a random share of the values, the same of every image."""
    return torch.rand(x.shape[1:], generator=torch.Generator().manual_seed(0)) < share


def on_half(front: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of a random half of the values."""
    return lambda x: torch.where(some_of(x, 0.5), front(x), x)


def triangles(size: float, period: float) -> Callable[[Tensor], Tensor]:
    """Adds a triangle wave to each value of the image."""
    return lambda x: x + size * (4 * ((x / period + 0.25) % 1 - 0.5).abs() - 1)


class Falsified(torch.autograd.Function):
    """The image as it is, with gradients times some factors."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, factors: Tensor) -> Tensor:
        ctx.save_for_backward(factors)
        return x.clone()

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return grads[0] * factors, None


def falsified(factor: float, share: float) -> Callable[[Tensor], Tensor]:
    """Multiplies the gradient at a random share of the values."""

    def front(x: Tensor) -> Tensor:
        image: Tensor = Falsified.apply(x, torch.where(some_of(x, share), factor, 1.0))
        return image

    return front


HONEST: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing": lambda x: x,
    "a crop": lambda x: F.pad(x[..., 1:-1, 1:-1], (1, 1, 1, 1)),
}
HIDDEN: dict[str, Callable[[Tensor], Tensor]] = {
    "x * (x > 0.05)": lambda x: x * (x > 0.05),
    "x * (x > 0.2)": lambda x: x * (x > 0.2),
    "softshrink, 0.05": lambda x: F.softshrink(x, 0.05),
    "max pooling of 2 x 2": lambda x: F.interpolate(F.max_pool2d(x, 2), scale_factor=2),
}
WAVES = {f"x + {size} sin({pace}x)": wave(size, pace) for size, pace in ((0.02, 300), (0.02, 1000), (0.005, 300))}
SLOPES = {
    "steps of 1/16, slope -1": steps(1 / 16, -1.0),
    "steps of 1/16, slope -0.3": steps(1 / 16, -0.3),
    "steps of 1/32, slope -1": steps(1 / 32, -1.0),
    "triangles of 0.02, period 1/16": triangles(0.02, 1 / 16),
    "triangles of 1/16, period 1/8": triangles(1 / 16, 1 / 8),
    "steps of 1/16, slope -0.3, on half of the values": on_half(steps(1 / 16, -0.3)),
}
FALSIFIED = {
    "a tenth of the gradient reversed": falsified(-1.0, 0.1),
    "a fifth of the gradient reversed": falsified(-1.0, 0.2),
    "half of the gradient divided by 10,000": falsified(1e-4, 0.5),
    "nine tenths of the gradient divided by 10,000": falsified(1e-4, 0.9),
}
GROUPS = {"honest": HONEST, "hidden": HIDDEN, "waves": WAVES, "slopes": SLOPES, "falsified": FALSIFIED}
EPS = {"digits": {"Linf": "0.1", "L2": "0.5", "L1": "2"}, "resnet2b_cifar": {"Linf": "2/255", "L2": "0.3", "L1": "3"}}


class Behind(nn.Module):
    """A network behind a function."""

    def __init__(self, front: Callable[[Tensor], Tensor], network: nn.Module) -> None:
        super().__init__()
        self.front, self.network = front, network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(self.front(x))
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--only", default="", help="norms, groups of fronts and networks, separated by commas")
    parser.add_argument("--images", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = set(options.only.split(",")) - {""}

    def among(names: dict[str, object] | dict[str, str]) -> list[str]:
        return [name for name in names if name in chosen] or list(names)

    networks: dict[str, tuple[nn.Module, Tensor, Tensor]] = {}
    if options.zoo is None or "digits" in chosen:
        networks["digits"] = (base_network(), *load_dataset("digits").batch(range(options.images)))
    if options.zoo is not None:
        subject = zoo(options.zoo, "resnet2b_cifar", "cifar10", options.images)
        networks["resnet2b_cifar"] = (subject.model, subject.x, subject.y)
    fronts = {name: front for group in among(dict(GROUPS)) for name, front in GROUPS[group].items()}
    print("| network | norm | in front | clean | rk-7 | default | autoattack | rk-7 warns | default warns |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, (network, x, y) in networks.items():
        for norm in among(EPS[name]):
            for text, front in fronts.items():
                row = columns(Behind(front, network).eval(), TensorDataset(x, y), norm, EPS[name][norm])
                print("|", " | ".join([name, f"{norm} {EPS[name][norm]}", f"`{text}`", *row]), "|", flush=True)


def columns(model: nn.Module, dataset: TensorDataset, norm: str, eps: str) -> list[str]:
    """Accuracy of clean images and under each ensemble, and what warns."""
    accuracies, warned = [], []
    for attack in ("rk-7", "default", "autoattack"):
        run = evaluate(model, dataset=dataset, attacks=attack, norm=norm, eps=eps, samples=None)
        accuracies.append(f"{run.results.accuracy.iloc[-1]:.0%}")
        warned.append("yes" if run.manifest["warnings"] else "no")
    return [f"{run.results.accuracy.iloc[0]:.0%}", *accuracies, *warned[:2]]


if __name__ == "__main__":
    main()
