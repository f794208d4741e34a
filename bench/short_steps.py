"""How far a step may go before the gradient of an honest network fails it, and before a wave in front of it shows.

For each step, as a share of the radius: on how many of 32 clean images, in per cent, central differences along the
gradient are less than half or more than twice of what it says. The step of `finite_difference` was chosen on this.

    python bench/short_steps.py --zoo DIR
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from fronts import Behind
from subjects import Subject, zoo
from torch import Tensor

from robustkit import Classifier
from robustkit.checks.finite_difference import differences
from robustkit.checks.local_loss import LocalLoss
from robustkit.primitives import registry
from robustkit.primitives.protocol import Trials

STEPS = (0.05, 0.1, 0.2, 0.3, 0.5)
IMAGES = 32
HONEST = (
    ("smallcnn_mnist", "mnist", {"Linf": (0.02, 0.1, 0.15, 0.3), "L2": (0.5, 1.5, 3), "L1": (2, 8, 20)}),
    ("trades_mnist", "mnist", {"Linf": (0.1, 0.3, 0.4), "L2": (1, 2), "L1": (5, 10)}),
    ("resnet2b_cifar", "cifar10", {"Linf": (1 / 255, 2 / 255, 8 / 255), "L2": (0.1, 0.3, 1), "L1": (3, 12)}),
    ("cnn_a_cifar", "cifar10", {"Linf": (2 / 255, 8 / 255), "L2": (0.3,), "L1": (3,)}),
    ("kw_mnist", "mnist", {"Linf": (0.1, 0.2), "L2": (1.2,), "L1": (8,)}),
    ("resnet20_cifar", "cifar10", {"Linf": (1 / 1020, 1 / 255, 8 / 255), "L2": (0.05, 0.5), "L1": (1, 12)}),
    ("base_kw_cifar", "cifar10", {"Linf": (2 / 255, 8 / 255)}),
)
BEHIND_WAVES = (("smallcnn_mnist", "mnist", 0.1), ("resnet2b_cifar", "cifar10", 8 / 255))
WAVES = tuple((height, speed) for height in (0.005, 0.02) for speed in (100, 300, 1000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="folder with zoo.py")
    folder = parser.parse_args().zoo
    torch.set_num_threads(1)
    print(f"| network | radius | {' | '.join(f'{100 * step:g} %' for step in STEPS)} |\n{'|---' * (2 + len(STEPS))}|")
    for name, images, radii in HONEST:
        subject = zoo(folder, name, images, IMAGES)
        for norm, each in radii.items():
            for eps in each:
                row(name, subject, norm, eps)
    for name, images, eps in BEHIND_WAVES:
        subject = zoo(folder, name, images, IMAGES)
        for height, speed in WAVES:
            front = partial(wave, height, speed)
            waves = subject._replace(model=Behind(front, subject.model).eval())
            row(f"{name} behind x + {height:g} sin({speed} x)", waves, "Linf", eps)


def wave(height: float, speed: float, x: Tensor) -> Tensor:
    return x + height * torch.sin(speed * x)


def row(name: str, subject: Subject, norm: str, eps: float) -> None:
    shares = " | ".join(f"{100 * share:.0f}" for share in shares_outside(subject, norm, eps))
    print(f"| {name} | {norm} {eps:.4g} | {shares} |", flush=True)


def shares_outside(subject: Subject, norm: str, eps: float) -> list[float]:
    """Of each step."""
    none = torch.full_like(subject.y, -1)
    with Classifier(subject.model).session(subject.x) as session:
        trials = Trials(subject.x, subject.y, none, none, torch.arange(len(subject.y)), torch.zeros_like(none))
        local = LocalLoss(session, registry.build("fgsm", norm, str(eps)), trials)
        gradient = local.gradient()
        return [differences(local, gradient, step)[0].double().mean().item() for step in STEPS]


if __name__ == "__main__":
    main()
