"""Optimisers, losses and starts at equal budgets: a hundred gradients for each image (in L1 also ten and twenty).

Attacks that draw no noise with one restart are run once. "Only" counts images that the attack breaks and `apgd-ce` with
the same seed does not, and the reverse, over all seeds.

    python bench/ascents.py --zoo DIR [--only trades] [--attacks acg] [--images 128] [--start 0] [--seeds 3]
    python bench/ascents.py --zoo DIR --only L1 --images 250  # Linf, or a network and its norm
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from default import Case, mean, subject_of
from subjects import Subject
from torch import Tensor

from robustkit import attack
from robustkit.primitives import registry

REFERENCE = "apgd-ce:steps=100"
# 100 gradients each; those of the image itself, and of steps that spread the outputs, are among them.
ATTACKS = (
    REFERENCE, "apgd-dlr:steps=100", "apgd:steps=100,loss=margin", "pgd:steps=100", "pgd:steps=100,loss=margin",
    "pgd:steps=50,restarts=2,loss=margin", "odi-pgd:steps=48,restarts=2", "multitargeted:steps=11",
    "adam_pgd:steps=100,loss=margin", "gama:steps=99", "md:steps=50", "pma:steps=50", "acg:steps=100",
    "acg:steps=100,variant=reference", "reacg:steps=100", "reacg:steps=100,variant=reference",
)  # fmt: skip
ATTACKS_L1 = (
    REFERENCE,
    *(f"{name}:steps={steps},loss=margin" for steps in (10, 20, 100) for name in ("pgd", "apgd", "frank_wolfe")),
)
NO_NOISE = ("acg", "reacg")

CASES = (
    Case("resnet2b_cifar", "cifar10", "Linf", "2/255", True),
    Case("smallcnn_mnist", "mnist", "Linf", "0.1", True),
    Case("trades_mnist", "mnist", "Linf", "0.32", True),
    Case("cnn_a_cifar", "cifar10", "Linf", "2/255", False),
    Case("resnet2b_cifar", "cifar10", "L1", "3", True),
    Case("smallcnn_mnist", "mnist", "L1", "8", True),
    Case("cnn_a_cifar", "cifar10", "L1", "3", False),
)


class Result(NamedTuple):
    robust: Tensor  # [seeds, N] bool
    passes: float  # of an image that stands


def result(subject: Subject, case: Case, specification: str, seeds: Sequence[int]) -> Result:
    method = registry.build(specification, case.norm, case.eps)
    runs = [attack(subject.model, subject.x, subject.y, method, seed=seed) for seed in seeds]
    spent = [float(value) for run in runs for value in (run.forwards + run.backwards)[~run.success]]
    return Result(torch.stack([~run.success for run in runs]), mean(spent))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--only", default="", help="text in a case's network, norm or eps")
    parser.add_argument("--attacks", default="", help="text in an attack's specification")
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--start", type=int, default=0, help="number of the first correctly classified image")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| network | norm | eps | n | attack | robust, % | only this / only apgd-ce | passes |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for case in CASES:
        if options.only not in " ".join(map(str, case)):
            continue
        subject = subject_of(options.zoo, case, options.start, options.images)
        reference = result(subject, case, REFERENCE, range(options.seeds)).robust
        for specification in ATTACKS_L1 if case.norm == "L1" else ATTACKS:
            if options.attacks not in specification:
                continue
            once = specification.partition(":")[0] in NO_NOISE
            found = result(subject, case, specification, range(1 if once else options.seeds))
            robust = found.robust.expand_as(reference)
            shares = " ".join(f"{100 * float(row.double().mean()):.1f}" for row in found.robust)
            only = f"{int((reference & ~robust).sum())} / {int((robust & ~reference).sum())}"
            print(
                f"| {case.network} | {case.norm} | {case.eps} | {len(subject.x)} | {specification} | {shares} | "
                f"{only} | {found.passes:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
