"""Tiny models of scikit-learn's digits, fitted in closed form, and helpers that read runs."""

import copy
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from robustkit.reports import write_csv
from torch import Tensor, nn

from robustkit.checks import RULES
from robustkit.checks.check import Rule
from robustkit.classifier.batch_sizes import share_comparisons
from robustkit.evaluation.evaluation import carry_out
from robustkit.evaluation.request import EvaluationRequest
from robustkit.evaluation.resolved import resolve
from robustkit.evidence.run import Run
from robustkit.host.progress import Silent
from robustkit.primitives import ensembles
from robustkit.primitives.stage import Stage
from tests.problems import filled

# An ensemble in which each member breaks images that the members before it did not (at Linf 0.1).
TINY = ("noise:queries=3", "fgsm", "pgd:steps=6")
_FEW = {"steps": 2, "queries": 4, "shrink_over": 4, "restarts": 2, "start_radius": 2}


def shortened(stage: Stage) -> Stage:
    """A member of an ensemble with a small budget."""
    text = stage.specification
    for name, few in _FEW.items():
        text = re.sub(rf"\b{name}=\d+", f"{name}={few}", text)
    return stage._replace(specification=text)


@contextmanager
def ensemble(name: str, members: Mapping[str, Sequence[Stage]]) -> Iterator[str]:
    """The name of an ensemble of these members in each norm, while the context lasts."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for norm, stages in members.items():
            monkeypatch.setitem(ensembles.IN_NORM, (name, norm), tuple(stages))
            monkeypatch.setitem(ensembles.ENSEMBLES, name, tuple(stages))
        yield name


@contextmanager
def short_default() -> Iterator[str]:
    """The name of an ensemble with the measures and thresholds of the default, and few steps after its first member.

    More images stand at its end, so it warns of masked gradients wherever the default does.
    """
    members = {}
    for norm in ("Linf", "L2", "L1"):
        first, *others = ensembles.stages("default", norm)
        members[norm] = (first, *map(shortened, others))
    with ensemble("brief", members) as name:
        yield name


def only(*names: str) -> tuple[Rule, ...]:
    """These rules, because all of them take seconds."""
    return tuple(rule for rule in RULES if rule.name in names)


@cache
def _digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    raw = load_digits()
    return torch.from_numpy(raw.images).float().unsqueeze(1) / 16, torch.from_numpy(raw.target).long()


def data(count: int = 30) -> tuple[Tensor, Tensor]:
    """Images and labels that none of these models was fitted to."""
    x, y = _digits()
    return x[1000 : 1000 + count].clone(), y[1000 : 1000 + count].clone()


def linear() -> nn.Module:
    return _copy("linear")


def cnn() -> nn.Module:
    """A random convolution with BatchNorm, and a linear layer on it."""
    return _copy("cnn")


def _copy(kind: str) -> nn.Module:
    """A fresh copy, for which batch sizes are not compared again."""
    network = copy.deepcopy(_fitted(kind))
    share_comparisons(network, _fitted(kind))
    return network


@cache
def _fitted(kind: str) -> nn.Sequential:
    """A linear layer on features, by least squares, rounded so that it does not depend on the solver."""
    body = (
        nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) if kind == "cnn" else nn.Sequential()
    )
    features = nn.Sequential(filled(body), nn.Flatten())
    x, y = (part[:1000] for part in _digits())
    with torch.no_grad():
        values = features(x).double()
        with_bias = torch.cat([values, torch.ones(len(values), 1)], 1)
        normal = with_bias.T @ with_bias + torch.eye(with_bias.shape[1])
        weights = torch.linalg.solve(normal, with_bias.T @ nn.functional.one_hot(y, 10).double())
        head = nn.Linear(values.shape[1], 10)
        head.weight.copy_((weights[:-1].T * 1024).round() / 64)
        head.bias.copy_((weights[-1] * 1024).round() / 64)
    return nn.Sequential(features, head).eval()


class Recorder(Silent):
    """Records the progress of a run, and interrupts the run after a number of images."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stages: list[tuple[str, int, int]] = []
        self.images = 0
        self.sentences: list[str] = []
        self._left = stop_after

    def stage(self, text: str, total: int, done: int) -> None:
        self.stages.append((text, total, done))

    def advance(self, images: int, robust: float) -> None:
        self.images += images
        if self._left is not None:
            self._left -= images
            if self._left < 0:
                raise KeyboardInterrupt

    def say(self, text: str) -> None:
        self.sentences.append(text)


def evaluated(models: Any, folder: Path | None, **request: Any) -> Run:
    """`evaluate` without its CSV files and report, which take longer than these evaluations."""
    asked = EvaluationRequest(models, **request)
    return carry_out(resolve(asked), folder, asked.watch)


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
    """One accuracy of the results."""
    rows = run.results[run.results.attack == attack]
    rows = rows if eps_text is None else rows[rows.eps_text == eps_text]
    rows = rows if model is None else rows[rows.model == model]
    (value,) = rows.accuracy
    return float(value)


def broken(run: Run, attack: str, eps_text: str | None = None) -> set[int]:
    """Numbers of the images that an attack broke."""
    rows = run.samples[(run.samples.attack == attack) & (run.samples.verdict == "broken")]
    return set(rows["sample"] if eps_text is None else rows["sample"][rows.eps_text == eps_text])


def save(path: Path, x: Tensor, y: Tensor | Sequence[int]) -> Path:
    """A `.npz` data set."""
    import numpy as np

    np.savez(path, x=x.numpy(), y=np.asarray(y))
    return path
