"""`robustkit trace` from the command line."""

import json

import pandas as pd
import pytest

from tests.cli.conftest import DATA, MODEL
from tests.cli.conftest import place as place
from tests.cli.conftest import robustkit as robustkit

TRACE = ("trace", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1")
CNN = ("trace", "-q", "-m", "net.py:other", *DATA, "-a", "fgsm", "--eps", "0.1")


def test_a_trace_writes_three_files_and_prints_the_table(robustkit, place):
    said = robustkit(*CNN, "-o", "here")

    assert said.status == 0, said.err
    assert said.err == ""
    assert {file.name for file in (place / "here").iterdir()} == {"trace.html", "trace.csv", "trace.json"}
    assert "here" in said.out.splitlines()[-1]
    assert "<- most" in said.out


def test_the_same_command_gives_the_same_bytes(robustkit, place, undrawn):
    robustkit(*CNN, "-o", "one", "-b", "3")
    robustkit(*CNN, "-o", "other", "-b", "64")

    for name in ("trace.csv", "trace.json"):
        assert (place / "one" / name).read_bytes() == (place / "other" / name).read_bytes()


def test_layers_are_named_by_glob(robustkit, place, undrawn):
    said = robustkit(*CNN, "--layer", "0.0.*", "--layer", "1", "-o", "out")
    frame = pd.read_csv(place / "out" / "trace.csv")

    assert said.status == 0, said.err
    assert frame.layer.unique().tolist() == ["(input)", "0.0.0", "0.0.1", "0.0.2", "1"]


def test_samples_and_the_threat_are_those_asked_for(robustkit, place, undrawn):
    robustkit(*TRACE[:-2], "--norm", "L2", "--eps", "1/2", "-n", "10", "-o", "out")
    document = json.loads((place / "out" / "trace.json").read_text())

    assert (document["norm"], document["eps"]) == ("L2", "1/2")
    assert document["images"] + document["clean_wrong"] == 10


def test_images_have_their_numbers_in_the_data_set(robustkit, place, undrawn):
    from robustkit.data import load_dataset, pick

    robustkit(*TRACE, "-n", "12", "-o", "out")
    document = json.loads((place / "out" / "trace.json").read_text())
    labels = load_dataset("digits.npz").labels

    assert {one["sample"] for one in document["samples"]} <= set(pick(30, 12))
    assert all(int(labels[one["sample"]]) == one["label"] for one in document["samples"])


def test_what_is_wrong_with_the_model_is_said_once(robustkit, place, undrawn):
    (place / "soft.py").write_text(
        "from torch import nn\nfrom tests import small\n\n\ndef factory():\n"
        "    return nn.Sequential(small.linear(), nn.Softmax(1))\n"
    )
    said = robustkit("trace", "-q", "-m", "soft.py:factory", *DATA, "-a", "fgsm", "--eps", "0.1", "-o", "out")

    assert said.status == 0, said.err
    assert said.err.startswith("Warning: ")
    assert said.err.count("\n") == 1
    assert "probabilities" in said.err


WORDS = {
    "no model": (["trace", *DATA], "--model"),
    "unknown layer": ([*CNN, "--layer", "0.0.9"], "0.0.9"),
    "unknown attack": (["trace", "-q", *MODEL, *DATA, "-a", "pdg"], "pgd"),
    "an ensemble": (["trace", "-q", *MODEL, *DATA, "-a", "default", "--eps", "0.1"], "apgd-ce"),
    "unknown option": ([*TRACE, "--layers", "1"], "--layer"),
    "no samples": ([*TRACE, "-n", "0"], "0"),
    "no radius": (["trace", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "8"], "8/255"),
    "a broken model": (["trace", "-q", "-m", "net.py:nan", *DATA, "--eps", "0.1"], "NaN"),
}


@pytest.mark.parametrize(("words", "hint"), WORDS.values(), ids=WORDS)
def test_bad_input_is_one_line_and_leaves_nothing(robustkit, place, words, hint):
    said = robustkit(*words)

    assert said.status == 2
    assert said.out == ""
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1
    assert hint in said.err
    assert not (place / "robustkit-trace").exists()


def test_an_unwritable_folder_is_met_before_the_work(robustkit, place):
    (place / "file").write_text("")
    said = robustkit(*TRACE, "-o", "file")

    assert said.status == 2
    assert "--out" in said.err
