"""PGD-40 in Linf: robustkit, torchattacks, foolbox and ART against a bare loop of 40 forward and gradient passes.

All in one process with one thread, interleaved: in every round each tool runs once, in an order that rotates, and its
CPU time is divided by the bare loop's of the same round; the table has the medians of these ratios. With one thread
CPU time is wall time on a quiet machine, and does not feel a busy one much.

    python bench/pgd.py --zoo DIR [--rounds 5] [--only TEXT]
    python bench/pgd.py                # without a zoo: resnet18 on digits alone
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from peers import RUNNERS, Runner, Task, bare
from subjects import Subject, digits, zoo
from torch import Tensor, nn


class Case(NamedTuple):
    what: str
    network: str
    images: str
    eps: float
    count: int
    batch: int


CASES = (
    Case("nothing breaks, no BatchNorm", "resnet2b_cifar", "cifar10", 0.02 / 255, 256, 64),
    Case("nothing breaks, no BatchNorm, six times the network", "smallcnn_mnist", "mnist", 0.0005, 256, 64),
    Case("robust, little breaks", "resnet2b_cifar", "cifar10", 1 / 255, 256, 64),
    Case("about 60 % robust", "resnet2b_cifar", "cifar10", 4 / 255, 256, 64),
    Case("about 60 % robust, a longer queue", "trades_mnist", "mnist", 0.34, 1024, 64),
    Case("undefended", "smallcnn_mnist", "mnist", 0.3, 512, 64),
    Case("undefended, BatchNorm folds", "resnet20_cifar", "cifar10", 8 / 255, 256, 64),
    Case("nothing breaks, BatchNorm folds", "resnet20_cifar", "cifar10", 0.02 / 255, 128, 64),
    Case("nothing breaks, BatchNorm folds, batch 128", "resnet20_cifar", "cifar10", 0.02 / 255, 128, 128),
)
DIGITS = (
    Case("nothing breaks, BatchNorm folds", "resnet18", "digits", 0.002, 128, 64),
    Case("nothing breaks, BatchNorm folds, batch 128", "resnet18", "digits", 0.002, 128, 128),
    Case("part breaks", "resnet18", "digits", 0.1, 256, 64),
)


@dataclass
class Rows:
    """Rows sent through a network, forwards and backwards."""

    forwards: int = 0
    backwards: int = 0

    def __deepcopy__(self, memo: object) -> "Rows":
        return self  # a copy of the network counts on the same counter

    def backward(self, grad: Tensor) -> None:
        self.backwards += len(grad)


class Counted(nn.Module):
    # It cannot be traced, so that robustkit searches it unfolded: the same queries, up to the last bits.
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.rows = network, Rows()

    def forward(self, x: Tensor) -> Tensor:
        self.rows.forwards += len(x)
        logits: Tensor = self.network(x)
        if logits.requires_grad:
            logits.register_hook(self.rows.backward)
        return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="text in a case's network or description")
    parser.add_argument("--tools", default=",".join(RUNNERS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    runners = {name: RUNNERS[name] for name in options.tools.split(",")}
    for case, subject in subjects(options.zoo, options.only):
        measured(case, subject, runners, options.rounds)


def subjects(folder: Path | None, only: str) -> Iterator[tuple[Case, Subject]]:
    for case in DIGITS + (CASES if folder is not None else ()):
        if only not in f"{case.network} {case.what}":
            continue
        if case.images == "digits":
            yield case, digits(case.network, case.count)
        elif folder is not None:
            yield case, zoo(folder, case.network, case.images, case.count)


def measured(case: Case, subject: Subject, runners: dict[str, Runner], rounds: int) -> None:
    count = len(subject.x) // case.batch * case.batch
    x, y = subject.x[:count], subject.y[:count]
    model = subject.model.eval().requires_grad_(False)
    ratios: dict[str, list[float]] = {name: [] for name in runners}
    robust: dict[str, list[float]] = {name: [] for name in runners}
    limits = []
    names = list(runners)
    for turn in range(rounds):
        task = Task(x, y, case.eps, case.batch, seed=turn)
        limit = _seconds(bare, model, task)[0]
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds, kept = _seconds(runners[name], model, task)
            ratios[name].append(seconds)
            robust[name].append(100 * kept.double().mean().item())
        # The machine drifts: the limit of a round is the mean of the loops before and after it.
        limit = (limit + _seconds(bare, model, task)[0]) / 2
        limits.append(limit)
        for name in names:
            ratios[name][-1] /= limit
    print(f"\n{case.network}, eps {case.eps:.5f}, {count} images, batch {case.batch}: {case.what}")
    print(f"bare loop {1000 * statistics.median(limits) / (count / case.batch) / 40:.1f} ms per step")
    print(f"{'tool':22} {'time / bare':>12} {'from - to':>13} {'F rows/image':>13} {'B rows/image':>13}   robust %")
    for name in names:
        counted = Counted(model).eval()
        runners[name](counted, Task(x, y, case.eps, case.batch, seed=0))
        rows, span = counted.rows, f"{min(ratios[name]):.3f}-{max(ratios[name]):.3f}"
        kept = f"{statistics.mean(robust[name]):.2f} ({min(robust[name]):.1f}-{max(robust[name]):.1f})"
        print(
            f"{name:22} {statistics.median(ratios[name]):12.3f} {span:>13} {rows.forwards / count:13.1f} "
            f"{rows.backwards / count:13.1f}   {kept}",
            flush=True,
        )


def _seconds(run: Runner, model: nn.Module, task: Task) -> tuple[float, Tensor]:
    since = time.process_time()
    robust = run(model, task)
    return time.process_time() - since, robust


if __name__ == "__main__":
    main()
