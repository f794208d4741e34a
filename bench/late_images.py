"""Single attacks on the images that AutoAttack breaks and the first member of the default does not.

What a later member of an ensemble is worth is decided on these images; those that fall at once hide it. AutoAttack's
verdicts are those that `bench/default.py` keeps.

    python bench/late_images.py --zoo DIR --keep DIR --only "trades_mnist mnist Linf 0.32" "soft_apgd:steps=50" ...
    # with --start 250, on correctly classified images from that number on
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from default import CASES, Case, subject_of, verdicts
from subjects import Subject
from torch.utils.data import TensorDataset

from robustkit import evaluate
from robustkit.evidence.run import Run
from robustkit.primitives import ensembles


def attacked(subject: Subject, case: Case, numbers: list[int], attack: str, seed: int) -> Run:
    """A run of one attack on some of the images."""
    data: Any = TensorDataset(subject.x[numbers], subject.y[numbers])
    return evaluate(
        subject.model, dataset=data, attacks=attack, norm=case.norm, eps=[case.eps], seed=seed, samples=None,
    )  # fmt: skip


def late(subject: Subject, case: Case, keep: Path) -> list[int]:
    """The numbers of the images."""
    broken = set(range(len(subject.x))) - verdicts(subject, case, "autoattack", 0, keep).robust
    first = ensembles.members("default", case.norm)[0]
    rows = attacked(subject, case, sorted(broken), first, 0).samples
    left = rows["sample"][(rows.attack != "clean") & (rows.verdict == "robust")]
    return [sorted(broken)[number] for number in left]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="+")
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--keep", type=Path, required=True, help="folder for runs of autoattack")
    parser.add_argument("--only", default="", help="text in a case's network, norm or eps")
    parser.add_argument("--images", type=int, default=250)
    parser.add_argument("--start", type=int, default=0, help="number of the first correctly classified image")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in CASES:
        if not case.chosen or options.only not in " ".join(map(str, case)):
            continue
        subject = subject_of(options.zoo, case, options.start, options.images)
        numbers = late(subject, case, options.keep)
        print(f"\n{case.network} {case.norm} {case.eps}: {len(numbers)} images")
        for attack in options.attacks:
            runs = [attacked(subject, case, numbers, attack, seed).samples for seed in range(options.seeds)]
            rows = [each[each.attack != "clean"] for each in runs]
            broken = " ".join(str((each.verdict == "broken").sum()) for each in rows)
            passes = sum((each.forwards + each.backwards).sum() for each in rows) / len(numbers) / len(rows)
            print(f"{attack:60} {broken:>8} {passes:6.0f}", flush=True)


if __name__ == "__main__":
    main()
