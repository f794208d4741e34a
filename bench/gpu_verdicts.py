"""The default ensemble on a GPU and on the CPU beside it: the images that stand, and those on which the two differ.

On a GPU sums are rounded in another order, so an image at the boundary may fall on one and stand on the other.

    python bench/gpu_verdicts.py                      # resnet18, trained on digits by robustkit
    python bench/gpu_verdicts.py --zoo DIR            # and the networks of a folder, see subjects.py
"""

import argparse
from pathlib import Path
from statistics import mean

import torch
from default import CASES, Case, Verdicts, verdicts
from subjects import Subject, digits, zoo

from robustkit.host.environment import environment

_IN_ALL_NORMS, _IN_LINF = ("resnet2b_cifar", "smallcnn_mnist"), ("trades_mnist", "cnn_a_cifar", "kw_mnist")
IN_ZOO = tuple(
    case for case in CASES
    if case.network in _IN_ALL_NORMS or (case.network in _IN_LINF and case.norm == "Linf" and case.eps != "0.32")
)  # fmt: skip
ON_DIGITS = (
    Case("resnet18", "digits", "Linf", "0.1", False),
    Case("resnet18", "digits", "L2", "0.5", False),
    Case("resnet18", "digits", "L1", "4", False),
)


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
    for case in (*ON_DIGITS, *(IN_ZOO if options.zoo else ())):
        if options.only not in " ".join(map(str, case)):
            continue
        subject = (
            digits(case.network, options.images)
            if case in ON_DIGITS
            else zoo(options.zoo, case.network, case.images, options.images)
        )
        cpu, gpu = (judged(subject, case, device) for device in ("cpu", options.device))
        print(
            f"| {case.network} | {case.norm} {case.eps} | {len(subject.y)} | {len(cpu.robust)} | {len(gpu.robust)} "
            f"| {len(cpu.robust ^ gpu.robust)} | {mean(cpu.passes.values()):.1f} | {mean(gpu.passes.values()):.1f} "
            f"| {cpu.seconds:.1f} | {gpu.seconds:.1f} |", flush=True,
        )  # fmt: skip


def judged(subject: Subject, case: Case, device: str) -> Verdicts:
    subject.model.to(device)
    return verdicts(subject, case, "default", 0, None, device)


if __name__ == "__main__":
    main()
