"""Lookups, votes and steps inside a network: what attacks leave, what a run says, and what is left straight through.

    python bench/straight_through.py [--images 100]

Digits behind defenses whose gradient says nothing of what another image would choose. The images are those from 220 on:
the temperature of soft choices was chosen on earlier ones, behind the first of these defenses.
"""

import argparse
import copy
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit import Classifier, diagnose, evaluate, load_dataset, masked_defenses

FIRST = 220
SHARE = 0.7  # of the way to the nearest training image
SHARPNESS = 10.0  # of the softmax over distances that is made by hand


class Retrieve(nn.Module):
    """The image, mixed with the training image that is nearest in L2."""

    images: Tensor  # [N, D]

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        self.register_buffer("images", images.flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """`[B, *S]`."""
        nearest = torch.cdist(x.flatten(1), self.images).argmin(1)
        return SHARE * self.images[nearest].view_as(x) + (1 - SHARE) * x

    def smooth(self, x: Tensor) -> Tensor:
        """The same with a mean of training images, the nearer ones weighing more."""
        weights = (-SHARPNESS * torch.cdist(x.flatten(1), self.images)).softmax(1)
        return SHARE * (weights @ self.images).view_as(x) + (1 - SHARE) * x


class Neighbours(nn.Module):
    """Counts the classes of the five training images whose features are nearest."""

    features: Tensor
    classes: Tensor

    def __init__(self, network: nn.Sequential, images: Tensor, labels: Tensor) -> None:
        super().__init__()
        self.network = network[:-1]
        with torch.no_grad():
            self.register_buffer("features", self.network(images))
        self.register_buffer("classes", labels)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, 10]`."""
        nearest = torch.cdist(self.network(x), self.features).topk(5, 1, largest=False).indices
        return F.one_hot(self.classes[nearest], 10).sum(1).float()


class Votes(nn.Module):
    """Counts the answers of a network to five brightnesses of the image."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """`[B, 10]`."""
        return sum(F.one_hot(self.network(x * light).argmax(1), 10) for light in (1, 0.95, 0.9, 0.85, 0.8)).float()


class Codebook(nn.Module):
    """Each column of the image, replaced by the nearest of some columns of training images."""

    columns: Tensor  # [N, 8]

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        every = images.squeeze(1).transpose(1, 2).flatten(0, 1)
        self.register_buffer("columns", every[:: len(every) // 256][:256])

    def forward(self, x: Tensor) -> Tensor:
        """`[B, *S]`."""
        columns = x.squeeze(1).transpose(1, 2)
        nearest = torch.cdist(columns, self.columns).argmin(-1)
        return self.columns[nearest].transpose(1, 2).unsqueeze(1)


class Steps(nn.Module):
    """Rounds values to multiples of 1 / levels: all of them, or those in every second column."""

    def __init__(self, levels: int, *, half: bool) -> None:
        super().__init__()
        self.levels, self.half = levels, half

    def forward(self, x: Tensor) -> Tensor:
        """As `x`."""
        rounded = (x * self.levels).round() / self.levels
        return torch.where(torch.arange(x.shape[-1]) % 2 == 0, rounded, x) if self.half else rounded


class Subject(NamedTuple):
    """A defended network and its threat."""

    name: str
    model: nn.Module
    norm: str = "Linf"
    eps: str = "0.15"
    by_hand: Callable[[Tensor], Tensor] | None = None  # the gradient of its first layer, made by who knows it


def subjects() -> list[Subject]:
    """All of them, on one network."""
    train = load_dataset("digits", "train")
    images, labels = train.batch(range(len(train)))
    network = masked_defenses.base_network()
    retrieve = Retrieve(images)
    activations = []
    for layer in copy.deepcopy(network).children():
        activations += [layer, *([Steps(255, half=False)] if isinstance(layer, nn.ReLU) else [])]
    retrieving = nn.Sequential(OrderedDict(retrieve=retrieve, net=network))
    return [
        Subject("none", network),
        Subject("nearest training image mixed in", retrieving, by_hand=retrieve.smooth),
        Subject("columns from a codebook", nn.Sequential(Codebook(images), network)),
        Subject("votes of five brightnesses", Votes(network)),
        Subject("classes of five neighbours", Neighbours(network, images, labels)),
        Subject("none", network, "L2", "0.5"),
        Subject("activations of 8 bits", nn.Sequential(*activations), "L2", "0.5"),
        Subject("steps on half of the values", nn.Sequential(Steps(8, half=True), network), "L2", "0.5"),
    ]


def main() -> None:
    """Print a line for each defense."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=100)
    count = parser.parse_args().images
    warnings.simplefilter("ignore")
    x, y = load_dataset("digits").batch(range(FIRST, FIRST + count))
    print("| defense | clean | default | it warns | Square, 5,000 | straight through | by hand | diagnose |")
    for subject in subjects():
        model = subject.model.eval()

        def left(attack: str, model: nn.Module = model, subject: Subject = subject, **options: object) -> list[str]:
            classifier = Classifier(model, **options)
            try:
                run = evaluate(classifier, dataset=(x, y), attacks=attack, norm=subject.norm, eps=subject.eps)
            except Exception as error:
                return [type(error).__name__] * 3
            row = run.results[run.results["role"] == "worst-case"].iloc[0]
            alarms = [check.name for check in run.checks if check.status in ("failed", "warning")]
            return [f"{100 * run.results.accuracy[0]:.0f} %", f"{100 * row.accuracy:.0f} %", ", ".join(alarms) or "no"]

        clean, default, alarms = left("default")
        by_hand = left("default", bpda={"retrieve": subject.by_hand})[1] if subject.by_hand else ""
        said = diagnose(model, x[:64], y[:64], norm=subject.norm, eps=subject.eps).verdict
        cells = (
            f"{subject.name}, {subject.norm} {subject.eps}", clean, default, alarms, left("square:queries=5000")[1],
            left("default", straight_through=True)[1], by_hand, said,
        )  # fmt: skip
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
