"""`--dry-run`: the bound of the plan, and the passes that a pilot predicts."""

from pathlib import Path

import pandas as pd
import pytest

from tests.cli.conftest import DATA, MODEL, Printed
from tests.small import data, save


def total(printed: Printed) -> tuple[int, int]:
    """Predicted forwards and backwards of the whole run."""
    assert printed.status == 0, printed.err
    last = printed.out.splitlines()[-1]
    assert last.startswith("In all about ")
    forwards, backwards, _ = (int(word.replace(",", "")) for word in last.split() if word.replace(",", "").isdigit())
    return forwards, backwards


def spent(folder: Path) -> tuple[int, int]:
    table = pd.read_csv(folder / "results.csv")
    counted = table[table.role.isin(["clean", "worst-case"])]
    return int(counted.forwards.sum()), int(counted.backwards.sum())


def files(place):
    """All files but those that Python itself writes when it imports one."""
    return {path for path in place.rglob("*") if "__pycache__" not in path.parts}


def test_passes_are_predicted_and_nothing_is_written(robustkit, place):
    words = ("evaluate", "-q", *MODEL, "-m", "net.py:other", *DATA, "-a", "pgd:steps=5", "-a", "noise:queries=4",
             "--eps", "0.02", "--eps", "0.1")  # fmt: skip
    before = files(place)
    predicted = total(robustkit(*words, "--dry-run", "--out", "dry"))

    assert files(place) == before
    robustkit(*words, "--out", "run")
    for told, real in zip(predicted, spent(place / "run"), strict=True):
        assert real / 2 < told < 2 * real


def test_the_bound_comes_first(robustkit):
    words = ("evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--eps", "0.1")

    assert robustkit(*words, "--dry-run").out.startswith(robustkit(*words, "--plan").out)


def test_a_precision_that_may_stop_earlier_makes_it_a_bound(robustkit, place):
    save(place / "many.npz", *(part.repeat(20, *[1] * (part.ndim - 1)) for part in data(30)))
    words = ("evaluate", "-q", *MODEL, "-d", "many.npz", "-a", "fgsm", "--eps", "0.1", "--dry-run")
    early = robustkit(*words, "-n", "all", "--precision", "0.1")
    late = robustkit(*words, "-n", "30", "--precision", "0.01")

    assert early.out.splitlines()[-1].startswith("In all at most about ")
    assert early.out.count("--precision may stop earlier") == 2
    assert all("<=" in line for line in early.out.splitlines() if line.startswith("  clean"))
    assert "<=" not in late.out
    assert total(late)


def test_without_weights_there_is_no_prediction_and_no_training(robustkit, place):
    words = ("-q", "-m", "shufflenet_v2_x0_5", "-a", "fgsm", "--eps", "0.1")
    printed = robustkit("evaluate", *words, "--dry-run")

    assert printed.status == 0
    assert "In all at most" in printed.out
    assert "No prediction: shufflenet_v2_x0_5 must first be trained on digits" in printed.out
    assert not (place.parent / "cache").exists()


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("net.py:crash", "first line"),
        ("net.py:text", "Module"),
        ("net.py:nan", "NaN"),
        ("net.py:coupled", "batch"),
        ("net.py:exits", "SystemExit"),
    ],
)
def test_a_model_that_fails_is_one_line(model, word, robustkit, place):
    net = place / "net.py"
    net.write_text(net.read_text() + "\ndef exits():\n    return networks.Changed(small.linear(), lambda _: exit(3))\n")
    printed = robustkit("evaluate", "-q", "-m", model, *DATA, "-a", "fgsm", "--eps", "0.1", "--dry-run")

    assert printed.status == 2
    assert len(printed.err.splitlines()) == 1
    assert printed.err.startswith("Error: ")
    assert word in printed.err
    assert "In all about" not in printed.out
