"""`--config FILE`: the same options from a TOML file; options on the command line take precedence."""

import shutil

import pytest

from tests.cli.conftest import DATA, MODEL
from tests.cli.test_bad_input import refused
from tests.small import evidence

TOML = """
model = ["net.py:factory", "net.py:other"]
dataset = "digits.npz"
attack = ["fgsm", "pgd:steps=3"]
norm = "L2"
eps = [0.2, "0.4"]
samples = 12
batch-size = 5
seed = 3
no-fold = true
quiet = true
"""
FLAGS = (
    *("-q", "-m", "net.py:factory", "-m", "net.py:other", "-d", "digits.npz", "-a", "fgsm", "-a", "pgd:steps=3"),
    *("--norm", "L2", "--eps", "0.2", "--eps", "0.4", "-n", "12", "-b", "5", "--seed", "3", "--no-fold"),
)


def write(place, text: str) -> None:
    (place / "run.toml").write_text(text)


def test_a_file_gives_the_run_of_the_same_flags_in_the_same_folder(robustkit, place):
    write(place, TOML)
    robustkit("evaluate", "--config", "run.toml")
    (folder,) = (place / "robustkit-runs").iterdir()
    from_file = {name: (folder / name).read_bytes() for name in ("results.csv", "samples.csv")}, evidence(folder)
    shutil.rmtree(folder)
    robustkit("evaluate", *FLAGS)

    assert {name: (folder / name).read_bytes() for name in from_file[0]} == from_file[0]
    assert evidence(folder)["attacked"] == from_file[1]["attacked"]


def test_flags_take_precedence(robustkit, place):
    write(place, TOML)
    words = ("-m", "net.py:factory", "-a", "noise:queries=2", "--eps", "0.3", "-n", "4", "--seed", "0")
    robustkit("evaluate", "--config", "run.toml", *words, "--out", "a")
    robustkit("evaluate", "-q", *words, "-d", "digits.npz", "--norm", "L2", "--no-fold", "--out", "b")

    assert (place / "a" / "results.csv").read_text() == (place / "b" / "results.csv").read_text()


def test_flags_before_the_file_take_precedence_too(robustkit, place):
    write(place, TOML)
    robustkit("evaluate", "-n", "4", "--config", "run.toml", "--out", "a")

    assert "net.factory,digits,test,-,0.0,0,clean,clean,4," in (place / "a" / "results.csv").read_text()


def test_one_value_needs_no_list(robustkit, place):
    write(place, 'model = "net.py:factory"\ndataset = "digits.npz"\nattack = "fgsm"\neps = 0.1\nquiet = true\n')

    assert robustkit("evaluate", "--config", "run.toml").status == 0


def test_mean_and_std_are_lists_of_numbers(robustkit, place):
    write(place, 'model = "net.py:factory"\ndataset = "digits.npz"\nattack = "fgsm"\nmean = [0.5]\nstd = [0.25]\n')
    robustkit("evaluate", "-q", "--config", "run.toml", "--out", "a")
    robustkit("evaluate", "-q", *MODEL, *DATA, "-a", "fgsm", "--mean", "0.5", "--std", "0.25", "--out", "b")

    assert (place / "a" / "samples.csv").read_text() == (place / "b" / "samples.csv").read_text()


WRONG = {
    "no TOML": ("model = [", ["TOML"]),
    "an unknown key": ("sampels = 5", ["sampels", "samples"]),
    "a plural": ('attacks = "fgsm"', ["attacks", "attack"]),
    "a table": ("[evaluate]\nsamples = 5", ["evaluate"]),
    "samples in words": ('samples = "many"', ["samples"]),
    "samples 0": ("samples = 0", ["samples"]),
    "half a sample": ("samples = 1.5", ["samples"]),
    "two folders": ('out = ["a", "b"]', ["out"]),
    "letters for a mean": ('mean = ["a"]', ["mean"]),
    "a table for a mean": ("mean = {a = 1}", ["mean"]),
    "a word for a flag": ('bf16 = "maybe"', ["bf16"]),
    "a bad radius": ("eps = 8", ["8/255"]),
    "a bad attack": ('attack = "pdg"', ["pdg", "pgd"]),
    "a list of lists": ("eps = [[0.1]]", ["eps"]),
    "a date": ("seed = 2026-01-01", ["seed"]),
    "a config in a config": ('config = "other.toml"', ["config"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_entry_is_refused_in_one_line(case, robustkit, place):
    text, words = WRONG[case]
    start = 'model = "net.py:factory"\ndataset = "digits.npz"\n'
    start += "" if "attack" in text else 'attack = "fgsm"\n'
    write(place, start + text)

    refused(robustkit("evaluate", "-q", "--config", "run.toml"), *words)
    assert not list(place.rglob("results.csv"))


@pytest.mark.parametrize("name", ["nosuch.toml", ".", "digits.npz"])
def test_a_file_that_cannot_be_read_is_named(name, robustkit):
    refused(robustkit("evaluate", "--config", name), name)
