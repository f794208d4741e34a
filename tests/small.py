"""Tiny models of scikit-learn's digits without any training, and runs that are over in a blink."""

import copy
import sqlite3
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from robustkit.reports import write_csv
from torch import Tensor, nn

from robustkit.evidence.run import Run
from robustkit.host.progress import Silent
from tests.problems import filled

# An ensemble in which every member breaks some images that the ones before left (at Linf 0.1).
TINY = ("noise:queries=3", "fgsm", "pgd:steps=6")


@cache
def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    raw = load_digits()
    return torch.from_numpy(raw.images).float().unsqueeze(1) / 16, torch.from_numpy(raw.target).long()


def data(count: int = 30) -> tuple[Tensor, Tensor]:
    """Images and labels that no model here has seen."""
    x, y = _digits()
    return x[1000 : 1000 + count].clone(), y[1000 : 1000 + count].clone()


def linear() -> nn.Module:
    return copy.deepcopy(_fitted("linear"))


def cnn() -> nn.Module:
    """A random convolution with BatchNorm, and a linear layer on it."""
    return copy.deepcopy(_fitted("cnn"))


@cache
def _fitted(kind: str) -> nn.Sequential:
    """A linear layer on features, by least squares; coarse weights, so that no rounding of the solver is left."""
    body = (
        nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) if kind == "cnn" else nn.Sequential()
    )
    features = nn.Sequential(filled(body), nn.Flatten())
    x, y = (part[:1000] for part in _digits())
    with torch.no_grad():
        seen = features(x).double()
        wide = torch.cat([seen, torch.ones(len(seen), 1)], 1)
        square = wide.T @ wide + torch.eye(wide.shape[1])
        solved = torch.linalg.solve(square, wide.T @ nn.functional.one_hot(y, 10).double())
        head = nn.Linear(seen.shape[1], 10)
        head.weight.copy_((solved[:-1].T * 1024).round() / 64)
        head.bias.copy_((solved[-1] * 1024).round() / 64)
    return nn.Sequential(features, head).eval()


class Sure(nn.Module):
    """Says one class whatever it sees, with a gradient that leads nowhere."""

    def __init__(self, label: int, classes: int = 10) -> None:
        super().__init__()
        self.label, self.classes = label, classes

    def forward(self, x: Tensor) -> Tensor:
        bumps = 0.01 * torch.stack([x.flatten(1).mean(1) * (number + 1) for number in range(self.classes)], 1)
        return bumps + 50 * nn.functional.one_hot(torch.tensor(self.label), self.classes)


class Recorder(Silent):
    """Remembers what a run said, and breaks it off after so many images."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stages: list[tuple[str, int, int]] = []
        self.images = 0
        self.said: list[str] = []
        self.left = stop_after

    def stage(self, text: str, total: int, done: int) -> None:
        self.stages.append((text, total, done))

    def advance(self, images: int, robust: float) -> None:
        self.images += images
        if self.left is not None:
            self.left -= images
            if self.left < 0:
                raise KeyboardInterrupt

    def say(self, text: str) -> None:
        self.said.append(text)


def csv(run: Run, folder: Path) -> tuple[bytes, bytes]:
    """results.csv and samples.csv of a run."""
    write_csv(run, folder)
    return (folder / "results.csv").read_bytes(), (folder / "samples.csv").read_bytes()


def evidence(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables of a run folder's file."""
    opened = sqlite3.connect(folder / "run.sqlite")
    try:
        names = [
            name for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        return {name: sorted(opened.execute(f"SELECT * FROM {name}").fetchall()) for name in names}
    finally:
        opened.close()


def accuracy(run: Run, attack: str, eps_text: str | None = None, model: str | None = None) -> float:
    """One number of the results."""
    rows = run.results[run.results.attack == attack]
    rows = rows if eps_text is None else rows[rows.eps_text == eps_text]
    rows = rows if model is None else rows[rows.model == model]
    (value,) = rows.accuracy
    return float(value)


def broken(run: Run, attack: str, eps_text: str | None = None) -> set[int]:
    """The images that an attack broke."""
    rows = run.samples[(run.samples.attack == attack) & (run.samples.verdict == "broken")]
    return set(rows["sample"] if eps_text is None else rows["sample"][rows.eps_text == eps_text])


def save(path: Path, x: Tensor, y: Tensor | Sequence[int]) -> Path:
    """A `.npz` data set."""
    import numpy as np

    np.savez(path, x=x.numpy(), y=np.asarray(y))
    return path
