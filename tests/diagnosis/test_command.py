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
from tests.diagnosis import nets

clean = nets.base
noisy = lambda: nets.defended("noisy")
large_logits = lambda: nets.defended("temperature")
rounded = lambda: nets.defended("quantised")
ignores_images = lambda: nets.Lambda(lambda x: torch.zeros(len(x), 10))
nan = lambda: nets.Lambda(lambda x: x.flatten(1)[:, :10] * float("nan"))
constant = lambda: nets.Lambda(lambda x: 0 * x.flatten(1)[:, :10] + torch.arange(10.0))
"""


class Ended(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def diagnose(tmp_path, monkeypatch, capsys):
    """`robustkit diagnose WORDS...` in a folder with `net.py` and `digits.npz`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    save(tmp_path / "digits.npz", *images(32))
    monkeypatch.setattr(sys, "argv", ["robustkit"])

    def command(*words):
        capsys.readouterr()
        status = 0
        try:
            main(["diagnose", "-q", "-d", "digits.npz", "-o", "out", *words], prog_name="robustkit")
        except SystemExit as end:
            status = end.code or 0
        return Ended(status, *capsys.readouterr())

    return command


@pytest.mark.parametrize(
    ("model", "words", "status", "verdict"),
    [("clean", (), 0, "clear"), ("clean", ("--no-proof",), 4, "inconclusive"),
     ("rounded", ("--no-proof",), 3, "masked"), ("noisy", ("--no-proof",), 3, "randomized"),
     ("large_logits", ("--no-proof", "--loss", "ce"), 3, "loss saturated"),
     ("constant", ("--no-proof",), 4, "inconclusive"), ("ignores_images", (), 4, "inconclusive")],
)  # fmt: skip
def test_the_exit_status_is_the_verdict(diagnose, tmp_path, model, words, status, verdict):
    ended = diagnose("-m", f"net.py:{model}", "--eps", "0.2", *words)

    assert ended.status == status
    assert verdict.upper() in ended.out
    assert json.loads((tmp_path / "out" / "diagnosis.json").read_text())["verdict"] == verdict


def test_the_terminal_shows_the_layer_the_line_the_remedy_and_the_proof(diagnose):
    out = " ".join(diagnose("-m", "net.py:rounded", "--eps", "0.2").out.split())

    for text in ("quantise", "step <-", "torch.round", "--bpda quantise", "0.0 % under pgd", "32 images", "seed 0"):
        assert text in out
    assert "does not prove robustness" in out


def test_layers_seed_and_samples_are_passed_on(diagnose, tmp_path):
    diagnose("-m", "net.py:clean", "--eps", "0.2", "--layer", "conv*", "--seed", "5", "-n", "7", "--norm", "L2")
    document = json.loads((tmp_path / "out" / "diagnosis.json").read_text())

    assert [row["layer"] for row in document["rows"]] == ["conv1", "conv2"]
    assert (document["seed"], document["n"], document["norm"]) == (5, 7, "L2")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [((), "No model is given"), (("-m", "net.py:clean", "--eps", "8"), "8/255"),
     (("-m", "net.py:clean", "--layer", "conv9"), "conv9"), (("-m", "net.py:clean", "--loss", "x"), "no loss"),
     (("-m", "net.py:clean", "--eps", "0"), "above zero"), (("-m", "net.py:nothing",), "nothing"),
     (("-m", "net.py:clean", "-o", "digits.npz/out"), "--out"), (("-m", "net.py:nan"), "NaN or infinite logits")],
)  # fmt: skip
def test_bad_input_is_one_line_and_status_2(diagnose, tmp_path, words, sentence):
    ended = diagnose(*words)

    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert sentence in ended.err
    assert not (tmp_path / "out").exists()
