"""The default ensemble against plans that people use instead: verdicts image by image, and passes.

- PGD-100 with ten restarts.
- MALT (Melamed et al. 2024): nine target classes, ranked by logit difference over the L1 norm of the gradient of that
  difference at the image; then APGD on targeted DLR, 100 steps for each. Each network here has ten classes, so all nine
  wrong classes are targets in any order. The noise of a trial depends on its target, not on its place in the order: the
  order changes no verdict, and no passes of an image that survives. APGD-T stands for the plan here, in its own order,
  and one forward and nine gradients for the ranking are added to the passes of each image. The ranking is not computed.

- CRAttack (Pan et al., AAAI 2025), in Linf, with `--crattack`: a folder with its authors' code.

    python bench/plans.py --zoo DIR [--crattack DIR] [--only cnn_a] [--images 64] [--start 250] [--seed 0]
"""

import argparse
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import crattack
import default
import torch
from default import Case, Verdicts, mean, subject_of, verdicts
from subjects import Subject


class Plan(NamedTuple):
    name: str
    attack: str
    ranking: int = 0  # passes of an image before the attack


PLANS = (
    Plan("PGD-100, ten restarts", "pgd:steps=100,restarts=10"),
    Plan("MALT's targets", "apgd-t:steps=100,targets=9", ranking=1 + 9),
)

# Networks and norms where no budget of the default was chosen.
CASES = (
    Case("cnn_a_cifar", "cifar10", "Linf", "2/255", False),
    Case("base_kw_cifar", "cifar10", "Linf", "2/255", False),
    Case("kw_mnist", "mnist", "Linf", "0.1", False),
    Case("cnn_a_cifar", "cifar10", "L2", "0.3", False),
)


CHOSEN = tuple(case for case in default.CASES if case.chosen and case.norm == "Linf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--only", default="", help="text in a case's network, norm or eps")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--start", type=int, default=250, help="number of the first correctly classified image")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--crattack", type=Path, help="checkout of fzjcdt/constraint-relaxation-attack")
    parser.add_argument("--chosen", action="store_true", help="the networks on which budgets were chosen, in Linf")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | norm | eps | n | plan | robust, % | passes | only default / only plan breaks | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in CHOSEN if options.chosen else CASES:
        if options.only not in " ".join(map(str, case)):
            continue
        compare(subject_of(options.zoo, case, options.start, options.images), case, options.seed, options.crattack)


def compare(subject: Subject, case: Case, seed: int, authors: Path | None) -> None:
    """Print one row for the default and one for each plan."""
    ours = verdicts(subject, case, "default", seed, None)
    show(subject, case, "default", ours, "-")
    for plan in PLANS:
        result = verdicts(subject, case, plan.attack, seed, None)
        spent = {image: passes + plan.ranking for image, passes in result.passes.items()}
        show(subject, case, plan.name, result._replace(passes=spent), against(ours, result))
    if authors is not None and case.norm == "Linf":
        result = crattack.verdicts(subject, float(Fraction(case.eps)), seed, authors)
        show(subject, case, "CRAttack", result, against(ours, result))


def against(ours: Verdicts, other: Verdicts) -> str:
    return f"{len(other.robust - ours.robust)} / {len(ours.robust - other.robust)}"


def show(subject: Subject, case: Case, name: str, result: Verdicts, only: str) -> None:
    passes = mean([result.passes[image] for image in result.robust])
    print(
        f"| {case.network} | {case.norm} | {case.eps} | {len(subject.x)} | {name} | "
        f"{100 * len(result.robust) / len(subject.x):.1f} | {passes:.0f} | {only} | {result.seconds:.0f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
