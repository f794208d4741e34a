"""Seconds on a GPU: the default ensemble, `autoattack`, and the code of AutoAttack's authors.

The same network, images that it classifies rightly, radius, and published budgets; each as its users run it, all images
in one batch. `--autoattack DIR` is a checkout of https://github.com/fra31/auto-attack; `--device cpu` shows whether the
script runs.

    python bench/gpu_autoattack.py --autoattack DIR                # resnet18, trained on digits by robustkit
    python bench/gpu_autoattack.py --autoattack DIR --zoo DIR      # networks of a folder, see subjects.py
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from default import CASES, Case, verdicts
from subjects import Subject, digits, zoo

from robustkit.host.environment import environment
from robustkit.primitives.threat import exact

ON_DIGITS = Case("resnet18", "digits", "Linf", "0.1", False)
IN_ZOO = tuple(case for case in CASES if case.norm == "Linf" and case.network in ("smallcnn_mnist", "resnet2b_cifar"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autoattack", type=Path, required=True, help="folder that contains the package autoattack")
    parser.add_argument("--zoo", type=Path, help="folder with zoo.py")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    sys.path.insert(0, str(options.autoattack))
    if options.zoo is None:
        subjects = [(digits(ON_DIGITS.network, options.images), ON_DIGITS)]
    else:
        subjects = [(zoo(options.zoo, case.network, case.images, options.images), case) for case in IN_ZOO]
    print(f"{environment(torch.device(options.device))}\n", flush=True)
    print("| network, Linf | attack | stand | seconds |\n|---|---|---|---|")
    for subject, case in subjects:
        subject.model.to(options.device)
        verdicts(subject, case, "fgsm", 0, None, options.device)  # kernels are loaded here
        for attack in ("default", "autoattack"):
            ours = verdicts(subject, case, attack, 0, None, options.device)
            row(subject, case, attack, len(ours.robust), ours.seconds)
        row(subject, case, "its authors' code", *authors(subject, case, options.device))


def row(subject: Subject, case: Case, attack: str, standing: int, seconds: float) -> None:
    print(f"| {subject.name} {case.eps} | {attack} | {standing} of {len(subject.y)} | {seconds:.1f} |", flush=True)


def authors(subject: Subject, case: Case, device: str) -> tuple[int, float]:
    """Images that stand, and seconds."""
    from autoattack import AutoAttack

    radius = float(exact(case.eps))
    x, y = subject.x.to(device), subject.y.to(device)
    since = time.perf_counter()
    found = AutoAttack(
        subject.model, norm="Linf", eps=radius, seed=0, verbose=False, device=device
    ).run_standard_evaluation(x, y, bs=len(x))
    with torch.no_grad():
        standing = int((subject.model(found).argmax(1) == y).sum())
    return standing, time.perf_counter() - since


if __name__ == "__main__":
    main()
