"""How many images a run finishes in a second, apart from what the model computes.

    python bench/coordinator.py [--images 10000] [--attacks 4] [--profile]

A linear model on 8 x 8 images costs next to nothing, so what is measured is the engine, the evidence and the result
files: images times attacks, by CPU time of one thread. "evidence" is what a coordinator alone does: distances, rows and
SQLite.
"""

import argparse
import cProfile
import pstats
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import torch
from torch import nn

from robustkit import evaluate
from robustkit.evaluation.attacking import AttackPart

CLASSES, SHAPE = 10, (1, 8, 8)


class Stopwatch:
    """CPU seconds spent in a function."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function):
        def timed(*args, **kwargs):
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start

        return timed


def problem(images: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A linear model, images, and the labels that the model gives them."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))
    with torch.no_grad():
        model[1].weight.copy_(torch.randn(CLASSES, 64, generator=generator))
    x = torch.rand(images, *SHAPE, generator=generator)
    return model.eval(), x, model(x).argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--attacks", type=int, default=4)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model, x, y = problem(given.images)
    attacks = [f"pgd:steps={k + 1}" for k in range(given.attacks)]
    with tempfile.TemporaryDirectory() as folder:  # modules and templates are loaded once, however long a run is
        evaluate(model, dataset=(x[:64], y[:64]), attacks=attacks, eps=[0.01], out=Path(folder))
    evidence, profile = Stopwatch(), cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder, patch.object(AttackPart, "write", evidence.around(AttackPart.write)):
        start = time.process_time()
        if given.profile:
            profile.enable()
        rows = len(evaluate(model, dataset=(x, y), samples=None, attacks=attacks, eps=[0.01], out=Path(folder)).samples)
        profile.disable()
        spent = time.process_time() - start
    print(f"{rows} rows in {spent:.1f} s: {rows / spent:.0f} per second; evidence alone {rows / evidence.seconds:.0f}")
    if given.profile:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
