"""`robustkit diagnose`, in this process."""

import json
import sys
from typing import NamedTuple

import pytest

from robustkit.cli import main
from tests.diagnosis.nets import images
from tests.small import save

NET = """
import torch
from torch import nn
from tests.diagnosis import nets

class Deaf(nn.Module):
    def forward(self, x):
        return 0 * x.flatten(1)[:, :10] + torch.arange(10.0)

def clean():
    return nets.base()

def noisy():
    return nets.defended("noisy")

def hot():
    return nets.defended("temperature")

def rounded():
    return nets.defended("quantised")

def deaf():
    return Deaf()
"""


class Said(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def robustkit(tmp_path, monkeypatch, capsys):
    """`robustkit diagnose WORDS...` in a folder with `net.py` and `digits.npz`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    save(tmp_path / "digits.npz", *images(16))
    monkeypatch.setattr(sys, "argv", ["robustkit"])

    def command(*words):
        capsys.readouterr()
        status = 0
        try:
            main(["diagnose", "-q", "-d", "digits.npz", "-o", "out", *words], prog_name="robustkit")
        except SystemExit as end:
            status = end.code or 0
        return Said(status, *capsys.readouterr())

    return command


@pytest.mark.parametrize(
    ("model", "words", "status", "verdict"),
    [("clean", (), 0, "clear"), ("rounded", (), 3, "masked"), ("noisy", (), 3, "stochastic"),
     ("hot", ("--loss", "ce"), 3, "loss saturated"), ("deaf", (), 4, "inconclusive")],
)  # fmt: skip
def test_the_exit_status_is_the_verdict(robustkit, tmp_path, model, words, status, verdict):
    said = robustkit("-m", f"net.py:{model}", "--eps", "0.2", "--no-proof", *words)

    assert said.status == status
    assert verdict.upper() in said.out
    assert json.loads((tmp_path / "out" / "diagnosis.json").read_text())["verdict"] == verdict


def test_the_terminal_says_where_why_and_what_to_do_with_the_proof(robustkit):
    out = " ".join(robustkit("-m", "net.py:rounded", "--eps", "0.2").out.split())

    for text in ("quantise", "step <-", "torch.round", "--bpda quantise", "0.0 % by pgd", "16 images", "seed 0"):
        assert text in out
    assert "does not prove robustness" in out


def test_layers_seed_and_samples_are_passed_on(robustkit, tmp_path):
    robustkit("-m", "net.py:clean", "--eps", "0.2", "--layer", "conv*", "--seed", "5", "-n", "7", "--norm", "L2")
    found = json.loads((tmp_path / "out" / "diagnosis.json").read_text())

    assert [row["layer"] for row in found["rows"]] == ["conv1", "conv2"]
    assert (found["seed"], found["n"], found["norm"]) == (5, 7, "L2")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [((), "No model is given"), (("-m", "net.py:clean", "--eps", "8"), "8/255"),
     (("-m", "net.py:clean", "--layer", "conv9"), "conv9"), (("-m", "net.py:clean", "--loss", "x"), "no loss"),
     (("-m", "net.py:clean", "--eps", "0"), "above zero"), (("-m", "net.py:nothing",), "nothing")],
)  # fmt: skip
def test_bad_input_is_one_line_and_status_2(robustkit, tmp_path, words, sentence):
    said = robustkit(*words)

    assert said.status == 2
    assert said.err.count("\n") == 1
    assert sentence in said.err
    assert not (tmp_path / "out").exists()


def test_an_unwritable_folder_is_met_before_the_work(robustkit):
    said = robustkit("-m", "net.py:clean", "-o", "digits.npz/out")

    assert said.status == 2
    assert "--out" in said.err
