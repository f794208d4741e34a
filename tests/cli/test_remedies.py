"""`--bpda`, `--eot`, `--probabilities` and `--surrogate`."""

import pandas as pd
import pytest

from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused

STEPPED = """
import torch
from torch import nn
from tests import small

class Rounds(nn.Module):
    def forward(self, x):
        return torch.round(x * 8) / 8

class Noisy(nn.Module):
    def forward(self, x):
        return x + 0.1 * torch.randn_like(x)

def _before(layer):
    model = nn.Sequential()
    model.add_module("front", layer)
    model.add_module("network", small.linear())
    return model

def stepped():
    return _before(Rounds())

def noisy():
    return _before(Noisy())

def smooth(x):
    return x * 1.0

number = 3
"""


@pytest.fixture
def ask(robustkit, place):
    (place / "front.py").write_text(STEPPED)
    return lambda *words: robustkit("evaluate", "-q", *DATA, "-a", "fgsm", "--eps", "0.2", "--out", "run", *words)


def results(place) -> pd.DataFrame:
    return pd.read_csv(place / "run" / "results.csv").set_index("attack")


@pytest.mark.parametrize("how", ["front", "front=identity", "fro*", "front=front.py:smooth"])
def test_a_surrogate_gradient_breaks_what_a_step_function_hid(ask, place, how):
    masked = ask("-m", "front.py:stepped", "--out", "masked")
    told = ask("-m", "front.py:stepped", "--bpda", how)

    assert (masked.status, told.status) == (0, 0)
    assert pd.read_csv(place / "masked" / "results.csv").broken.max() == 0
    assert results(place).broken["fgsm"] > 10


def test_a_randomised_model_is_averaged_and_the_report_says_so(ask, place):
    said = ask("-m", "front.py:noisy", "--eot", "3")
    row = results(place).loc["fgsm"]

    assert "mean of 3 draws" in " ".join(said.out.split())
    assert (row.forwards, row.backwards) == (row.attacked * (3 + 64), row.attacked * 3)


def test_a_randomised_run_gives_equal_bytes_for_any_batch_size(ask, place):
    texts = []
    for size in ("1", "8", "auto"):
        ask("-m", "front.py:noisy", "--eot", "2", "-b", size, "--out", size)
        texts.append((place / size / "samples.csv").read_bytes())

    assert texts[0] == texts[1] == texts[2]


def test_transfer_has_a_column_for_each_surrogate(ask, place):
    said = ask("-m", "net.py:other", *MODEL, "--surrogate", "net.py:factory", "--surrogate", "net.py:other")
    frame = pd.read_csv(place / "run" / "results.csv").set_index(["model", "attack"])

    assert said.status == 0
    assert "transferred" in said.out
    assert frame.broken["net.factory", "fgsm@net.factory"] > frame.broken["net.factory", "fgsm@net.other"]


def test_a_dry_run_lists_the_surrogates(ask):
    said = ask(*MODEL, "--surrogate", "net.py:other", "--dry-run")

    assert "fgsm@" in said.out


def test_the_report_of_a_transfer_explains_its_columns(ask, place):
    ask(*MODEL, "--surrogate", "net.py:other")

    assert "transfer success" in (place / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--bpda", "fromt"), "front"),
        (("--bpda", "front=identiti"), "identity"),
        (("--bpda", "front=front.py:number"), "no function 'number'"),
        (("--bpda", "front=missing.py:smooth"), "no file"),
        (("--bpda", "front", "--bpda", "front=relu"), "twice"),
        (("--eot", "0"), "0"),
        (("--surrogate", "resnet1"), "resnet18"),
        (
            ("--surrogate", "net.py:other", "--surrogate-weights", "a.pt", "--surrogate-weights", "b.pt"),
            "give one each",
        ),
    ],
)
def test_what_a_remedy_cannot_do_is_one_line(ask, words, match):
    refused(ask("-m", "front.py:stepped", *words), match)


def test_the_manifest_holds_the_surrogate_gradient(ask, place):
    ask("-m", "front.py:stepped", "--bpda", "front")

    assert "bpda.front" in (place / "run" / "report.html").read_text(encoding="utf-8")
