"""Soft APGD and Guided Square against Square and APGD, on images that plain ascents leave near the boundary.

The images are those of the first 250 that `first`, `second`, `targeted` and `long` of rk-2 leave with a nearness ratio
below 0.2.

    python bench/guided.py --zoo DIR --keep DIR [--eps 0.32] [--seeds 3]
"""

import argparse
import time
from pathlib import Path

import torch
from subjects import Subject, zoo
from torch.utils.data import TensorDataset

from robustkit import evaluate
from robustkit.evidence.rows import NearnessRecord
from robustkit.evidence.store import Store
from robustkit.primitives import ensembles

ATTACKS = (
    "soft_apgd:steps=50", "soft_apgd:steps=50,restarts=2", "soft_apgd:steps=50,restarts=5,loss=margin",
    "soft_apgd:steps=30,loss=dlr,targets=3", "soft_apgd:steps=50,loss=dlr,targets=3",
    "guided_square:steps=300", "guided_square", "square:queries=1000", "square:queries=2500,shrink_over=5000",
    "square:queries=5000,shrink_over=10000", "apgd:steps=50,restarts=10",
)  # fmt: skip


def stubborn(subject: Subject, eps: str, folder: Path) -> list[int]:
    """The numbers of the images."""
    ensembles.ENSEMBLES["ascents"] = ensembles.stages("rk-2", "Linf")[:4]
    run = evaluate(
        subject.model, dataset=TensorDataset(subject.x, subject.y), attacks="ascents", eps=[eps], samples=None,
        out=folder, names=subject.name,
    )  # fmt: skip
    rows = run.samples[run.samples.attack == "ascents"]
    left = set(rows["sample"][rows.verdict == "robust"])
    store = Store(folder, reading=True)
    ratios: dict[int, float] = {}
    for row in store.rows(NearnessRecord, subject.name):
        ratios[row.sample] = min(row.ratio, ratios.get(row.sample, row.ratio))
    store.close()
    return sorted(number for number in left if ratios.get(number, 1.0) < 0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--network", default="trades_mnist")
    parser.add_argument("--eps", default="0.32")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--keep", type=Path, required=True, help="folder for the run of the ascents")
    options = parser.parse_args()
    torch.set_num_threads(1)
    subject = zoo(options.zoo, options.network, "mnist", 250)
    numbers = stubborn(subject, options.eps, options.keep / f"{options.network}-{options.eps}")
    x, y = subject.x[numbers], subject.y[numbers]
    print(f"{options.network}, Linf {options.eps}: {len(numbers)} images")
    print("| attack | broken, by seed | on any seed | passes per image | seconds |\n|---|---|---|---|---|")
    for attack in ATTACKS:
        broken: list[set[int]] = []
        passes, since = 0, time.perf_counter()
        for seed in range(options.seeds):
            run = evaluate(
                subject.model, dataset=TensorDataset(x, y), attacks=attack, eps=[options.eps], seed=seed, samples=None
            )
            rows = run.samples[run.samples.attack != "clean"]
            broken.append(set(rows["sample"][rows.verdict == "broken"]))
            passes += int((rows.forwards + rows.backwards).sum())
        counts = " ".join(str(len(each)) for each in broken)
        print(
            f"| {attack} | {counts} | {len(set().union(*broken))} | {passes / len(x) / options.seeds:.0f} | "
            f"{(time.perf_counter() - since) / options.seeds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
