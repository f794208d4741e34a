"""The default ensemble on a GPU and on the CPU beside it: the images that stand, and those on which the two differ.

On a GPU sums are rounded in another order, so an image at the boundary may fall on one and stand on the other.

    python bench/gpu_verdicts.py                      # resnet18, trained on digits by robustkit
    python bench/gpu_verdicts.py --zoo DIR            # and the networks of a folder, see subjects.py
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import torch
from subjects import Subject, digits, zoo
from torch.utils.data import TensorDataset

from robustkit import evaluate
from robustkit.host.environment import environment


class Case(NamedTuple):
    network: str
    images: str
    norm: str
    eps: str


CASES = (
    Case("resnet2b_cifar", "cifar10", "Linf", "2/255"),
    Case("resnet2b_cifar", "cifar10", "L2", "0.3"),
    Case("resnet2b_cifar", "cifar10", "L1", "3"),
    Case("smallcnn_mnist", "mnist", "Linf", "0.1"),
    Case("smallcnn_mnist", "mnist", "L2", "1.5"),
    Case("smallcnn_mnist", "mnist", "L1", "8"),
    Case("trades_mnist", "mnist", "Linf", "0.3"),
    Case("cnn_a_cifar", "cifar10", "Linf", "2/255"),
    Case("kw_mnist", "mnist", "Linf", "0.1"),
)
ON_DIGITS = (
    Case("resnet18", "digits", "Linf", "0.1"),
    Case("resnet18", "digits", "L2", "0.5"),
    Case("resnet18", "digits", "L1", "4"),
)


class Judged(NamedTuple):
    """What a run on one device found."""

    standing: set[int]
    passes: float  # forward and backward passes per image
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, help="folder with zoo.py")
    parser.add_argument("--only", default="", help="text in a case's network, norm or radius")
    parser.add_argument("--images", type=int, default=250)
    parser.add_argument("--device", default="cuda", help="the device beside the CPU")
    options = parser.parse_args()
    print(f"{environment(torch.device(options.device))}\n", flush=True)
    print(
        "| network | radius | images | stand on the CPU | on the GPU | differ "
        "| passes per image | on the GPU | seconds | on the GPU |"
    )
    print("|---" * 10 + "|")
    for case in (*ON_DIGITS, *(CASES if options.zoo else ())):
        if options.only not in " ".join(case):
            continue
        subject = (
            digits(case.network, options.images)
            if case in ON_DIGITS
            else zoo(options.zoo, case.network, case.images, options.images)
        )
        cpu, gpu = (judged(subject, case, device) for device in ("cpu", options.device))
        print(
            f"| {case.network} | {case.norm} {case.eps} | {len(subject.y)} | {len(cpu.standing)} | {len(gpu.standing)} "
            f"| {len(cpu.standing ^ gpu.standing)} | {cpu.passes:.1f} | {gpu.passes:.1f} "
            f"| {cpu.seconds:.1f} | {gpu.seconds:.1f} |", flush=True,
        )  # fmt: skip


def judged(subject: Subject, case: Case, device: str) -> Judged:
    model = subject.model.to(device)
    since = time.perf_counter()
    run = evaluate(
        model, dataset=TensorDataset(subject.x, subject.y), norm=case.norm, eps=case.eps, samples=None, device=device,
        progress=False,
    )  # fmt: skip
    spent = time.perf_counter() - since
    ensemble = run.results.query("role == 'ensemble'").attack.item()
    rows = run.samples[run.samples.attack == ensemble].set_index("sample")
    passes = (rows.forwards + rows.backwards).fillna(0).sum() / len(rows)
    return Judged(set(rows.index[rows.verdict == "robust"]), passes, spent)


if __name__ == "__main__":
    main()
