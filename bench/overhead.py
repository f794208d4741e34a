"""What the engine costs per step: everything that is not the model's forward and backward pass.

An attack runs on a network that costs almost nothing (a slice of the pixels plus a constant, so that no image ever
breaks), with two numbers of steps; the difference, divided by the steps between, is the cost of one step for a full
pool, and the rest is what a pool costs once (start, verdicts). Both stand beside one forward and input gradient of
torchvision's resnet18 at the same shapes. CPU time of one thread, medians.

    python bench/overhead.py [--rounds 7] [--batch 64]
"""

import argparse
import statistics
import time
from typing import NamedTuple

import torch
from peers import Task, bare
from robustkit.attacks import APGD, PGD, Square
from torch import Tensor, nn

from robustkit import attack
from robustkit.models.adaptation import build_torchvision, stem_for, with_stem
from robustkit.primitives.protocol import Attack

FEW, MANY = 10, 110


class Free(nn.Module):
    """Ten pixels as logits, and a constant that keeps class 0 ahead."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        # Never called: a convolution makes robustkit choose channels-last where it would for a real network.
        self.unused = nn.Conv2d(shape[0], 1, 1)
        self.register_buffer("ahead", 10.0 * torch.eye(10)[0])

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :10] + self.ahead  # type: ignore[no-any-return]


class Cost(NamedTuple):
    step: float  # milliseconds for a pool
    once: float  # milliseconds for a pool, whatever the number of steps


def overhead(build: type[Attack], norm: str, images: Tensor, rounds: int) -> Cost:
    model, labels = Free(tuple(images.shape[1:])), torch.zeros(len(images), dtype=torch.int64)
    budget = "queries" if build is Square else "steps"

    def seconds(count: int) -> float:
        method = build(0.01, norm, **{budget: count})
        since = time.process_time()
        kept = attack(model, images, labels, method, batch_size=len(images)).robust_accuracy
        assert kept == 1
        return time.process_time() - since

    seconds(FEW)
    pairs = [(seconds(FEW), seconds(MANY)) for _ in range(rounds)]
    step = statistics.median((many - few) / (MANY - FEW) for few, many in pairs)
    return Cost(1000 * step, 1000 * (statistics.median(few for few, _ in pairs) - FEW * step))


def resnet18_step(images: Tensor, rounds: int) -> float:
    """Milliseconds of one forward and input gradient, sign and clamp included."""
    network = with_stem(build_torchvision("resnet18", 10), stem_for(tuple(images.shape[1:])), tuple(images.shape[1:]))
    model = network.network.eval().requires_grad_(False)
    task = Task(images, torch.zeros(len(images), dtype=torch.int64), 0.01, len(images), 0, steps=2)
    bare(model, task)

    def seconds() -> float:
        since = time.process_time()
        bare(model, task)
        return time.process_time() - since

    return 1000 * statistics.median(seconds() for _ in range(rounds)) / task.steps


METHODS: tuple[tuple[type[Attack], str], ...] = (
    (PGD, "Linf"), (PGD, "L2"), (PGD, "L1"), (APGD, "Linf"), (APGD, "L2"), (APGD, "L1"), (Square, "Linf"),
    (Square, "L2"),
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for shape in ((1, 8, 8), (3, 32, 32)):
        images = torch.rand(options.batch, *shape, generator=torch.Generator().manual_seed(0))
        whole = resnet18_step(images, options.rounds)
        print(f"\n{options.batch} images of {'x'.join(map(str, shape))}: a resnet18 step takes {whole:.1f} ms")
        print(f"{'attack':12} {'ms per step':>12} {'of a resnet18 step':>19} {'ms once per pool':>17}")
        for build, norm in METHODS:
            cost = overhead(build, norm, images, options.rounds)
            share = f"{100 * cost.step / whole:.2f} %"
            print(f"{build.__name__ + ' ' + norm:12} {cost.step:12.2f} {share:>19} {cost.once:17.1f}", flush=True)


if __name__ == "__main__":
    main()
