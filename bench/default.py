"""The default ensemble against `autoattack`: verdicts image by image, and passes for an image that neither breaks.

`autoattack` is compared with its authors' code in bench/autoattack.py. Its verdicts take long, so they are kept in
`--keep DIR` and used again. The budgets of rk-7 were chosen on images 0 to 249 of the cases marked "chosen" and on 250
to 499 of smallcnn_mnist in L2; earlier designs were tried on 314 to 813 of smallcnn_mnist and of trades_mnist at 0.32
in Linf. Other cases and other images were not looked at.

    python bench/default.py --zoo DIR --keep DIR [--only trades] [--images 100] [--start 250] [--seeds 3]
    python bench/default.py --zoo DIR --keep DIR --held-out --images 500 --start 0  # all images of the others
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from subjects import Subject, zoo
from torch.utils.data import TensorDataset

from robustkit import evaluate


class Case(NamedTuple):
    network: str
    images: str
    norm: str
    eps: str
    chosen: bool  # whether budgets were chosen here


CASES = (
    Case("resnet2b_cifar", "cifar10", "Linf", "2/255", True),
    Case("resnet2b_cifar", "cifar10", "L2", "0.3", True),
    Case("resnet2b_cifar", "cifar10", "L1", "3", True),
    Case("smallcnn_mnist", "mnist", "Linf", "0.1", True),
    Case("smallcnn_mnist", "mnist", "L2", "1.5", True),
    Case("smallcnn_mnist", "mnist", "L1", "8", True),
    Case("trades_mnist", "mnist", "Linf", "0.3", True),
    Case("trades_mnist", "mnist", "Linf", "0.32", True),
    Case("trades_mnist", "mnist", "L2", "2", True),
    Case("trades_mnist", "mnist", "L1", "10", True),
    Case("cnn_a_cifar", "cifar10", "Linf", "2/255", False),
    Case("cnn_a_cifar", "cifar10", "L2", "0.3", False),
    Case("cnn_a_cifar", "cifar10", "L1", "3", False),
    Case("base_kw_cifar", "cifar10", "Linf", "2/255", False),
    Case("kw_mnist", "mnist", "Linf", "0.1", False),
    Case("kw_mnist", "mnist", "L2", "1.2", False),
    Case("kw_mnist", "mnist", "L1", "8", False),
    Case("base_kw_cifar", "cifar10", "L2", "0.3", False),
)


class Verdicts(NamedTuple):
    robust: set[int]
    passes: dict[int, int]  # forwards and backwards of each image
    seconds: float
    warned: bool  # that gradients are masked


def verdicts(subject: Subject, case: Case, attack: str, seed: int, keep: Path | None, device: str = "auto") -> Verdicts:
    """What one ensemble or one attack leaves standing."""
    since = time.perf_counter()
    eps = case.eps.replace("/", "-")
    out = None if keep is None else keep / f"{subject.name}-{case.norm}-{eps}-{len(subject.x)}-{attack}-{seed}"
    run = evaluate(
        subject.model, dataset=TensorDataset(subject.x, subject.y), attacks=attack, norm=case.norm, eps=[case.eps],
        seed=seed, samples=None, out=out, names=subject.name, device=device,
    )  # fmt: skip
    column = run.results[run.results.role.isin(("ensemble", "attack"))].attack.iloc[0]
    rows = run.samples[run.samples.attack == column].set_index("sample")
    passes = (rows.forwards + rows.backwards).fillna(0).astype(int).to_dict()
    warned = any(check.name == "gradients_mislead" and check.status == "failed" for check in run.checks)
    return Verdicts(set(rows.index[rows.verdict == "robust"]), passes, time.perf_counter() - since, warned)


def mean(values: Sequence[float]) -> float:
    return statistics.mean(values) if values else float("nan")


def of_survivors(ours: list[Verdicts], full: Verdicts) -> tuple[list[int], list[int]]:
    """Passes for each image that neither breaks, on each seed: those of `ours`, and those of `full`."""
    both = [(each, i) for each in ours for i in sorted(each.robust & full.robust)]
    return [each.passes[i] for each, i in both], [full.passes[i] for _, i in both]


def per_survivor(ours: list[Verdicts], full: Verdicts) -> tuple[float, float]:
    """Passes for an image that neither breaks: those of `ours`, and those of `full`."""
    spent, theirs = of_survivors(ours, full)
    return mean(spent), mean(theirs)


def pooled(rows: list[tuple[int, list[Verdicts], Verdicts]]) -> str:
    """All networks of a norm together: the images of each, and what the two ensembles leave of them."""
    images = sum(n for n, _, _ in rows)
    left = sum(mean([len(each.robust) for each in ours]) for _, ours, _ in rows)
    full = sum(len(each.robust) for _, _, each in rows)
    passes = [of_survivors(ours, each) for _, ours, each in rows]
    spent, theirs = (mean([one for part in parts for one in part]) for parts in zip(*passes, strict=True))
    return (
        f"{images} images, default {100 * left / images:.2f} %, autoattack {100 * full / images:.2f} %, "
        f"{spent:.0f} passes for {theirs:.0f}, 1/{theirs / spent:.0f}"
    )


def subject_of(folder: Path, case: Case, start: int, count: int) -> Subject:
    """Correctly classified images from number `start` on; the name tells kept runs apart."""
    whole = zoo(folder, case.network, case.images, start + count)
    return Subject(f"{case.network}-{start}", whole.model, whole.x[start:], whole.y[start:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="folder for runs of autoattack")
    parser.add_argument("--only", default="", help="text in a case's network, norm or eps")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--start", type=int, default=250, help="number of the first correctly classified image")
    parser.add_argument("--held-out", action="store_true", help="only networks on which no budget was chosen")
    parser.add_argument("--seeds", type=int, default=3, help="how many of the default")
    parser.add_argument("--autoattack-seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "| network | norm | eps | n | default | autoattack | only default / autoattack break | passes | in | seconds "
        "| warned |"
    )
    compared: dict[str, list[tuple[int, list[Verdicts], Verdicts]]] = {}
    for case in CASES:
        if options.only not in " ".join(map(str, case)) or (options.held_out and case.chosen):
            continue
        subject = subject_of(options.zoo, case, options.start, options.images)
        ours = [verdicts(subject, case, "default", seed, None) for seed in range(options.seeds)]
        full = verdicts(subject, case, "autoattack", options.autoattack_seed, options.keep)
        n, (spent, theirs) = len(subject.x), per_survivor(ours, full)
        shares = " ".join(f"{100 * len(each.robust) / n:.1f}" for each in ours)
        only = [sum(len(a - b) for a, b in pairs) for pairs in (
            [(full.robust, each.robust) for each in ours], [(each.robust, full.robust) for each in ours])]  # fmt: skip
        print(
            f"| {case.network}{'' if case.chosen else ' (held out)'} | {case.norm} | {case.eps} | {n} | {shares} | "
            f"{100 * len(full.robust) / n:.1f} | {only[0]} / {only[1]} | {spent:.0f} | 1/{theirs / spent:.0f} | "
            f"{mean([each.seconds for each in ours]):.0f} / {full.seconds:.0f} | "
            f"{'masked' if any(each.warned for each in ours) else '-'} |",
            flush=True,
        )
        compared.setdefault(case.norm, []).append((n, ours, full))
    for norm, rows in compared.items():
        print(f"{norm}, pooled: {pooled(rows)}")


if __name__ == "__main__":
    main()
