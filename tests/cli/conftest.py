"""An empty folder with a model and data in it, and the command line in this process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from robustkit.cli import main
from tests.small import data, save

torch.set_num_threads(1)

NET = """
import torch
from torch import nn
from tests import small

def factory():
    return small.linear()

def other():
    return small.cnn()

def sure():
    return small.Sure(3)

class Failing(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.inner, self.kind, self.norm = small.linear(), kind, nn.BatchNorm1d(10)

    def train(self, mode=True):
        super().train(mode)
        if self.kind == "train":
            self.norm.training = True
        return self

    def forward(self, x):
        logits = self.inner(x)
        if self.kind == "nan":
            return logits * float("nan")
        if self.kind == "late":
            return torch.where(x[:, :, 3, 3].sum(1, keepdim=True) > 0.99, torch.nan, logits)
        if self.kind == "coupled":
            return logits - logits.mean(0)
        return self.norm(logits)

def nan():
    return Failing("nan")

def late():
    return Failing("late")

def coupled():
    return Failing("coupled")

def train():
    return Failing("train")

def text():
    return "no module"

def crash():
    raise RuntimeError("first line\\nsecond line")
"""


class Said(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """The current folder: `net.py` and `digits.npz`, and a cache of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ROBUSTKIT_CACHE", str(tmp_path / "cache"))
    (folder / "net.py").write_text(NET)
    save(folder / "digits.npz", *data(30))
    return folder


@pytest.fixture
def robustkit(place, capsys, monkeypatch) -> Callable[..., Said]:
    """`robustkit WORDS...` without a new process; whatever else than a `SystemExit` is a traceback."""
    monkeypatch.setattr(sys, "argv", ["robustkit"])

    def command(*words: str | Path) -> Said:
        capsys.readouterr()
        status = 0
        try:
            main([str(word) for word in words], prog_name="robustkit")
        except SystemExit as end:
            status = end.code or 0
        return Said(status, *capsys.readouterr())

    return command


MODEL = ("-m", "net.py:factory")
DATA = ("-d", "digits.npz")
SMALL = ("evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1")
