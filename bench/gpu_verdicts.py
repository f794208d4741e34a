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
from gpu_tools import SEARCHES
from subjects import Subject, digits, zoo

from robustkit import Classifier
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
    parser.add_argument(
        "--searches", default="fp32", help=f"arithmetic of the search there; all are {','.join(SEARCHES)}"
    )
    options = parser.parse_args()
    print(f"{environment(torch.device(options.device))}\n", flush=True)
    searches = {name: SEARCHES[name] for name in options.searches.split(",")}
    print("| network | radius | images | stand on the CPU | passes per image | seconds "
          + "".join(f"| stand, {name} | differ | passes per image | seconds " for name in searches)
          + "|\n" + "|---" * (6 + 4 * len(searches)) + "|", flush=True)  # fmt: skip
    for case in (*ON_DIGITS, *(IN_ZOO if options.zoo else ())):
        if options.only not in " ".join(map(str, case)):
            continue
        subject = (
            digits(case.network, options.images)
            if case in ON_DIGITS
            else zoo(options.zoo, case.network, case.images, options.images)
        )
        cpu = judged(subject, case, "cpu", {})
        told = [case.network, f"{case.norm} {case.eps}", str(len(subject.y)), *shown(cpu)]
        for kind in searches.values():
            gpu = judged(subject, case, options.device, kind)
            stand, *spent = shown(gpu)
            told += [stand, str(len(cpu.robust ^ gpu.robust)), *spent]
        print(f"| {' | '.join(told)} |", flush=True)


def judged(subject: Subject, case: Case, device: str, search: dict[str, bool]) -> Verdicts:
    model = Classifier(subject.model.to(device), name=subject.name, **search)
    return verdicts(subject._replace(model=model), case, "default", 0, None, device)


def shown(found: Verdicts) -> list[str]:
    """The images that stand, passes per image, and seconds."""
    warned = ", warns" if found.warned else ""
    return [f"{len(found.robust)}{warned}", f"{mean(found.passes.values()):.1f}", f"{found.seconds:.1f}"]


if __name__ == "__main__":
    main()
