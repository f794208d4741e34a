"""A folder with a model file and a data file, and the command line in this process."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from robustkit.cli import main
from tests.small import data, save

torch.set_num_threads(1)

NET = """
import torch
from tests import networks, small

def factory():
    return small.linear()

def other():
    return small.cnn()

def sure():
    return networks.Constant(3)

def rejecting():
    return networks.Changed(small.linear(), lambda logits: torch.cat([logits, logits.topk(2, 1)[0][:, 1:] + 0.5], 1))

def nan():
    return networks.Changed(small.linear(), lambda logits: logits * float("nan"))

def late():
    return networks.Changed(
        small.linear(), before=lambda x: torch.where(x[:, :, 3:4, 3:4] > 0.99, torch.nan, x)
    )

def coupled():
    return networks.Changed(small.linear(), lambda logits: logits - logits.mean(0))

def train():
    return networks.AlwaysTraining(small.cnn())

def text():
    return "no module"

def crash():
    raise RuntimeError("first line\\nsecond line")
"""


class Printed(NamedTuple):
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
def robustkit(place, capsys, monkeypatch) -> Callable[..., Printed]:
    """`robustkit WORDS...` without a new process; any exception but `SystemExit` fails the test."""
    monkeypatch.setattr(sys, "argv", ["robustkit"])

    def command(*words: str | Path) -> Printed:
        capsys.readouterr()
        status = 0
        try:
            main([str(word) for word in words], prog_name="robustkit")
        except SystemExit as end:
            status = end.code or 0
        return Printed(status, *capsys.readouterr())

    return command


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> Path:
    """Run folders of the tests of a module."""
    return tmp_path_factory.mktemp("originals")


@pytest.fixture
def run_once(originals, place, robustkit) -> Callable[..., Path]:
    """`run_once(NAME, WORDS...)`: the folder NAME of a run that the first test of a module makes, and others copy.

    It is made in a test, and not before all, because its page names the folder that it was made in.
    """

    def folder(name: str, *words: str) -> Path:
        if (originals / name).exists():
            shutil.copytree(originals / name, place / name)
        else:
            assert robustkit(*words, "--out", name).status == 0
            shutil.copytree(place / name, originals / name)
        return place / name

    return folder


def without(words: tuple[str, ...], *options: str) -> tuple[str, ...]:
    """A command but for these options and their values, for a test that gives them other values."""
    kept = []
    following = iter(words)
    for word in following:
        if word in options:
            next(following)
        else:
            kept.append(word)
    return tuple(kept)


def save_splits(file: Path, **splits: tuple[Tensor, Tensor]) -> None:
    """A `.npz` data set with several splits."""
    arrays = {
        f"{kind}_{split}": part.numpy() for split, (x, y) in splits.items() for kind, part in (("x", x), ("y", y))
    }
    np.savez(file, **arrays)


MODEL = ("-m", "net.py:factory")
DATA = ("-d", "digits.npz")
SMALL = ("evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1")
