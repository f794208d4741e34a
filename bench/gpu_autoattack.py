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
from subjects import Subject, digits, zoo
from torch.utils.data import TensorDataset

from robustkit import evaluate
from robustkit.host.environment import environment

ON_DIGITS = ("resnet18", "0.1")
IN_ZOO = (("smallcnn_mnist", "mnist", "0.1"), ("resnet2b_cifar", "cifar10", "2/255"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autoattack", type=Path, required=True, help="folder that contains the package autoattack")
    parser.add_argument("--zoo", type=Path, help="folder with zoo.py")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    sys.path.insert(0, str(options.autoattack))
    if options.zoo is None:
        subjects = [(digits(ON_DIGITS[0], options.images), ON_DIGITS[1])]
    else:
        subjects = [(zoo(options.zoo, name, images, options.images), eps) for name, images, eps in IN_ZOO]
    print(f"{environment(torch.device(options.device))}\n", flush=True)
    print("| network, Linf | attack | stand | seconds |\n|---|---|---|---|")
    for subject, eps in subjects:
        subject.model.to(options.device)
        evaluated(subject, eps, "fgsm", options.device)  # kernels are loaded here
        rows = [(attack, *evaluated(subject, eps, attack, options.device)) for attack in ("default", "autoattack")]
        for name, standing, seconds in [*rows, ("its authors' code", *authors(subject, eps, options.device))]:
            print(f"| {subject.name} {eps} | {name} | {standing} of {len(subject.y)} | {seconds:.1f} |", flush=True)


def evaluated(subject: Subject, eps: str, attack: str, device: str) -> tuple[int, float]:
    """Images that stand, and seconds."""
    since = time.perf_counter()
    run = evaluate(
        subject.model, dataset=TensorDataset(subject.x, subject.y), attacks=attack, norm="Linf", eps=eps, samples=None,
        device=device, progress=False,
    )  # fmt: skip
    return run.results.query("role == 'worst-case'")["correct"].item(), time.perf_counter() - since


def authors(subject: Subject, eps: str, device: str) -> tuple[int, float]:
    """Likewise."""
    from autoattack import AutoAttack

    radius = float(eps.split("/")[0]) / float(eps.split("/")[1]) if "/" in eps else float(eps)
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
