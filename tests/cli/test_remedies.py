"""`--bpda`, `--eot`, `--probabilities` and `--surrogate`."""

import pandas as pd
import pytest

from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused

STEPPED = """
from torch import nn
from tests import networks, small

def stepped():
    model = nn.Sequential()
    model.add_module("front", networks.Rounding(8))
    model.add_module("network", small.linear())
    return model

def noisy():
    return networks.Noisy(small.linear())

def smooth(x):
    return x * 1.0

number = 3
"""


@pytest.fixture
def ask(robustkit, place):
    (place / "front.py").write_text(STEPPED)

    def asked(*words, out="run"):
        return robustkit("evaluate", "-q", *DATA, "-a", "fgsm", "--eps", "0.2", "--out", out, *words)

    return asked


def results(place) -> pd.DataFrame:
    return pd.read_csv(place / "run" / "results.csv").set_index("attack")


@pytest.mark.parametrize(
    "words",
    [(), ("fro*",), ("front=front.py:smooth",),
     *(pytest.param(words, marks=pytest.mark.slow) for words in (("front",), ("front=identity",)))],
    ids=str,
)  # fmt: skip
def test_a_surrogate_gradient_breaks_the_images_that_rounding_protected(ask, place, words):
    assert ask("-m", "front.py:stepped", *("--bpda" for _ in words), *words).status == 0

    broken = results(place).broken["fgsm"]
    assert broken > 10 if words else broken == 0


def test_a_randomized_model_is_averaged_and_the_report_says_so(ask, place):
    printed = ask("-m", "front.py:noisy", "--eot", "3")
    row = results(place).loc["fgsm"]

    assert "mean of 3 draws" in " ".join(printed.out.split())
    assert "one draw" in printed.out
    assert row.backwards == row.attacked * 3
    # At least 32 draws for each verdict, in stages that double, and 32 for the accuracy of one.
    assert row.forwards - row.backwards >= row.attacked * 64
    assert (row.forwards - row.backwards) % 32 == 0


def test_a_randomized_run_gives_equal_bytes_for_any_batch_size(ask, place):
    texts = []
    for size in ("3", "auto"):
        ask("-m", "front.py:noisy", "--eot", "2", "-n", "10", "-b", size, out=size)
        texts.append((place / size / "samples.csv").read_bytes())

    assert texts[0] == texts[1]


def test_transfer_has_a_column_for_each_surrogate_model(ask, place):
    printed = ask("-m", "net.py:other", *MODEL, "--surrogate", "net.py:factory", "--surrogate", "net.py:other")
    frame = pd.read_csv(place / "run" / "results.csv").set_index(["model", "attack"])

    assert printed.status == 0
    assert "ATTACK@MODEL: transfer" in printed.out
    assert "transfer success" in (place / "run" / "report.html").read_text(encoding="utf-8")
    assert frame.broken["net.factory", "fgsm@net.factory"] > frame.broken["net.factory", "fgsm@net.other"]


def test_a_dry_run_lists_the_surrogate_models(ask):
    assert "fgsm@" in ask(*MODEL, "--surrogate", "net.py:other", "--dry-run").out


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
def test_a_remedy_that_cannot_be_applied_is_refused_in_one_line(ask, words, match):
    refused(ask("-m", "front.py:stepped", *words), match)


def test_the_report_names_the_surrogate_gradient(ask, place):
    ask("-m", "front.py:stepped", "--bpda", "front")

    assert "bpda.front" in (place / "run" / "report.html").read_text(encoding="utf-8")


def test_a_wrong_layer_is_refused_before_the_first_image(ask, place):
    refused(ask("-m", "front.py:stepped", "--bpda", "fromt"), "front")

    assert not list(place.glob("run/run.sqlite"))


def test_only_the_model_that_gives_gradients_needs_the_layer(ask):
    models = ("-m", "front.py:stepped", "--surrogate", "net.py:other")

    refused(ask(*models, "--bpda", "fromt"), "fromt")
    assert ask("-m", "net.py:other", "--surrogate", "front.py:stepped", "--bpda", "front").status == 0
