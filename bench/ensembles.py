"""What the budgets of an ensemble buy: robust accuracy after each member, and passes per image.

The budgets of `standard` were chosen here, on the validation split of digits and on networks of other people; no test
image of digits was looked at.

    python bench/ensembles.py [--zoo DIR]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from subjects import Subject, zoo

from robustkit import attack, load_dataset, load_model
from robustkit.primitives import ensembles, registry

BUDGETS = {
    "thorough": ensembles.members("thorough", "Linf"),
    "a tenth": ensembles.members("standard", "Linf"),
    "less": ("apgd-ce:steps=20", "apgd-t:steps=20,targets=3", "square:queries=200"),
    "more": ("apgd-ce:steps=50", "apgd-t:steps=30,targets=3", "square:queries=500"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--budgets", default=",".join(BUDGETS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for subject, eps in subjects(options.zoo):
        for name in options.budgets.split(","):
            left, passes = cascade(subject, eps, BUDGETS[name])
            steps = " ".join(f"{100 * share:.2f}" for share in left)
            print(f"{subject.name:18} eps {eps:6} {name:10} left %: {steps}   {passes:7.0f} passes/image", flush=True)


def subjects(folder: Path | None) -> Iterator[tuple[Subject, str]]:
    data = load_dataset("digits", "val")
    x, y = data.batch(range(len(data)))
    yield Subject("resnet18 on digits", load_model("resnet18", dataset="digits"), x, y), "0.1"
    if folder is not None:
        yield zoo(folder, "resnet2b_cifar", "cifar10", 200), "2/255"
        yield zoo(folder, "cnn_a_cifar", "cifar10", 200), "2/255"


def cascade(subject: Subject, eps: str, members: tuple[str, ...]) -> tuple[list[float], float]:
    alive = torch.ones(len(subject.x), dtype=torch.bool)
    left, passes = [], 0
    for specification in members:
        rows = alive.nonzero().flatten()
        result = attack(subject.model, subject.x[rows], subject.y[rows], registry.build(specification, "Linf", eps))
        alive[rows] = result.clean_correct & ~result.success
        passes += int((result.forwards + result.backwards).sum())
        left.append(alive.double().mean().item())
    return left, passes / len(subject.x)


if __name__ == "__main__":
    main()
