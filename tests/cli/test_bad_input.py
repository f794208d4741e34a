"""A command that cannot be run prints one line on stderr, returns status 2 and writes no report."""

import errno
import os
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tests.cli.conftest import DATA, MODEL, SMALL
from tests.small import data, linear, save

RUN = ("evaluate", "-q")
FAST = ("-a", "fgsm", "--eps", "0.1")


def refused(printed, *words: str) -> None:
    assert printed.status == 2
    assert printed.out == ""
    assert printed.err.startswith("Error: ")
    assert printed.err.count("\n") == 1
    assert all(word.lower() in printed.err.lower() for word in words), printed.err


@pytest.fixture(autouse=True)
def _no_report(place):
    yield
    assert not [file for file in place.rglob("*") if file.suffix in (".csv", ".html", ".part")]


WORDS = {
    "no model": ([*DATA, *FAST], ["--model"]),
    "unknown model": (["-m", "resnet81", *FAST], ["resnet81", "did you mean", "resnet18"]),
    "unknown attack": ([*MODEL, *DATA, "-a", "pdg"], ["pdg", "did you mean", "pgd"]),
    "unknown data set": ([*MODEL, "-d", "digit", *FAST], ["digit", "did you mean", "digits"]),
    "missing data file": ([*MODEL, "-d", "none.npz", *FAST], ["none.npz"]),
    "unknown norm": ([*MODEL, *DATA, *FAST, "--norm", "Linfty"], ["Linfty", "Linf"]),
    "unknown hyper-parameter": ([*MODEL, *DATA, "-a", "pgd:stesp=3"], ["stesp", "steps"]),
    "hyper-parameter without value": ([*MODEL, *DATA, "-a", "pgd:steps"], ["steps", "="]),
    "unknown split": ([*MODEL, "--split", "tset", *FAST], ["tset"]),
    "unknown option": ([*SMALL[2:], "--epsilon", "0.1"], ["--epsilon"]),
    "a word too many": ([*SMALL[2:], "word"], ["word"]),
    "eps 8": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "8"], ["8/255"]),
    "eps 8/0": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "8/0"], ["8/0"]),
    "eps abc": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "abc"], ["abc"]),
    "eps -1": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "-1"], ["-1"]),
    "eps nan": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "nan"], ["nan"]),
    "eps inf": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "inf"], ["inf"]),
    "eps 1e400": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "1e400"], ["radius"]),
    "an empty output": ([*MODEL, *DATA, *FAST, "--out", ""], ["path is empty"]),
    "an empty eps": ([*MODEL, *DATA, "-a", "fgsm", "--eps", ""], ["radius"]),
    "eps L2:": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "L2:"], ["radius"]),
    "eps of no norm": ([*MODEL, *DATA, "-a", "fgsm", "--eps", "L7:1"], ["L7"]),
    "one eps for two norms": (
        [*MODEL, *DATA, "-a", "fgsm", "--norm", "L2", "--norm", "Linf", "--eps", "0.1"], ["L", "--eps"],
    ),
    "an eps of a norm that is not evaluated": (
        [*MODEL, *DATA, "-a", "fgsm", "--norm", "Linf", "--eps", "0.1", "--eps", "L2:0.5"], ["L2"],
    ),
    "steps 0": ([*MODEL, *DATA, "-a", "pgd:steps=0"], ["steps", "1"]),
    "steps -3": ([*MODEL, *DATA, "-a", "apgd:steps=-3"], ["steps", "-3"]),
    "steps nan": ([*MODEL, *DATA, "-a", "pgd:steps=nan"], ["steps", "nan"]),
    "too many steps": ([*MODEL, *DATA, "-a", "pgd:steps=99999999999999999999"], ["steps"]),
    "queries 0": ([*MODEL, *DATA, "-a", "square:queries=0"], ["queries"]),
    "an unknown loss": ([*MODEL, *DATA, "-a", "pgd:loss=margni"], ["margni", "margin"]),
    "an attack without the norm": ([*MODEL, *DATA, "-a", "apgd-ce", "--norm", "L0", "--eps", "3"], ["L0", "Linf"]),
    "an attack twice": ([*MODEL, *DATA, *FAST, "-a", "fgsm"], ["fgsm", "twice"]),
    "an attack in two spellings": (
        [*MODEL, *DATA, *FAST, "-a", "pgd:steps=4", "-a", "pgd:steps=4,restarts=1"],
        ["'pgd:steps=4'", "'pgd:steps=4,restarts=1'", "the same attack"],
    ),
    "samples 0": ([*SMALL[2:], "--samples", "0"], ["samples"]),
    "samples -5": ([*SMALL[2:], "--samples", "-5"], ["samples"]),
    "samples many": ([*SMALL[2:], "--samples", "many"], ["samples", "all"]),
    "samples ²": ([*SMALL[2:], "--samples", "²"], ["samples"]),
    "audit 0": ([*SMALL[2:], "--audit", "0"], ["audit", "1"]),
    "audit many": ([*SMALL[2:], "--audit", "many"], ["audit", "many"]),
    "audit of a transfer": ([*SMALL[2:], "--audit", "3", "--surrogate", "net.py:other"], ["--audit", "--surrogate"]),
    "audit of a smoothed model": ([*SMALL[2:], "--audit", "3", "--smooth", "0.2"], ["--audit", "smoothed"]),
    "dry run of such an audit": ([*SMALL[2:], "--audit", "3", "--smooth", "0.2", "--dry-run"], ["--audit", "smoothed"]),
    "batch size 0": ([*SMALL[2:], "--batch-size", "0"], ["batch-size"]),
    "seed -1": ([*SMALL[2:], "--seed", "-1"], ["seed"]),
    "device": ([*SMALL[2:], "--device", "gpu"], ["gpu", "--device"]),
    "device meta": ([*SMALL[2:], "--device", "meta"], ["meta", "--device"]),
    "mean of letters": ([*SMALL[2:], "--mean", "a,b"], ["mean"]),
    "std 0": ([*SMALL[2:], "--mean", "0.5", "--std", "0"], ["std"]),
    "three means for grey": ([*SMALL[2:], "--mean", "0.5,0.5,0.5", "--std", "1,1,1"], ["mean"]),
    "two weights for one model": ([*SMALL[2:], "--weights", "a.pt", "--weights", "b.pt"], ["weights"]),
    "no weights file": ([*SMALL[2:], "--weights", "none.pt"], ["none.pt"]),
    "no function": (["-m", "net.py:nosuch", *DATA, *FAST], ["nosuch", "factory"]),
    "no program": (["-m", "nosuch.pt2", *DATA, *FAST], ["no file nosuch.pt2"]),
    "no folder": ([*MODEL, "-d", "nosuch/", *FAST], ["no file or folder nosuch"]),
    "two letters exchanged": ([*MODEL, *DATA, "-a", "pdg"], ["did you mean pgd or"]),
    "no file": (["-m", "nosuch.py:factory", *DATA, *FAST], ["nosuch.py"]),
    "no module": (["-m", "net.py:text", *DATA, *FAST], ["Module"]),
    "a failing function": (["-m", "net.py:crash", *DATA, *FAST], ["crash", "first line"]),
    "training a function": ([*SMALL[2:], "--train"], ["--train"]),
    "NaN logits": (["-m", "net.py:nan", *DATA, *FAST], ["NaN"]),
    "NaN logits later": (["-m", "net.py:late", *DATA, *FAST], ["NaN"]),
    "coupled rows": (["-m", "net.py:coupled", *DATA, *FAST], ["batch"]),
    "BatchNorm in train mode": (["-m", "net.py:train", *DATA, *FAST], ["BatchNorm", "train"]),
    "a published set without files": ([*MODEL, "-d", "cifar10", *FAST], ["--data-dir", "--download"]),
    "dry run of an unknown model": (["-m", "resnet81", "--dry-run"], ["resnet81", "resnet18"]),
    "dry run of a bad radius": ([*MODEL, *DATA, "--eps", "8", "--dry-run"], ["8/255"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WORDS)
def test_a_wrong_option_is_refused_in_one_line(case, robustkit):
    words, expected = WORDS[case]

    refused(robustkit(*RUN, *words), *expected)


@pytest.mark.parametrize(
    "words",
    [["nosuch"], ["list", "nosuch"], ["list"], ["report"], ["report", "nosuch"], ["report", "."], ["report", "net.py"],
     ["--nosuch"], ["cache", "nosuch"], ["cache", "clear", "nosuch"]],
    ids=" ".join,
)  # fmt: skip
def test_other_commands_refuse_in_one_line_too(words, robustkit):
    refused(robustkit(*words))


def pixel(value: float):
    def change(x, y):
        x[3, 0, 0, 0] = value
        return x, y

    return change


def labelled(value: int):
    def change(x, y):
        y[5] = value
        return x, y

    return change


SPOILT = {
    "nan": (pixel(torch.nan), "image 3"),
    "inf": (pixel(torch.inf), "image 3"),
    "a little high": (pixel(1.001), "image 3"),
    "255": (lambda x, y: (x * 255, y), "255"),
    "normalised": (lambda x, y: (2 * x - 1, y), "normalisation"),
    "label": (labelled(12), "classes"),
    "negative label": (labelled(-1), "image 5"),
    "empty": (lambda x, y: (x[:0], y[:0]), "empty"),
    "uneven": (lambda x, y: (x, y[:-1]), "labels"),
}
FILES = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:500]),
    "text": lambda file: file.write_text("hello"),
    "objects": lambda file: np.savez(file, x=np.array([{}]), y=np.array([1])),
    "without y": lambda file: np.savez(file, x=data(3)[0].numpy()),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_bad_data_are_refused_in_one_line(kind, robustkit, place):
    change, word = SPOILT[kind]
    save(place / "bad.npz", *change(*data(30)))

    refused(robustkit(*RUN, *MODEL, "-d", "bad.npz", *FAST), word)


@pytest.mark.parametrize("kind", FILES)
def test_a_bad_data_file_is_refused_in_one_line(kind, robustkit, place):
    FILES[kind](save(place / "bad.npz", *data(30)))

    refused(robustkit(*RUN, *MODEL, "-d", "bad.npz", *FAST), "bad.npz")


def broken_weights(file, kind: str) -> None:
    state = linear().state_dict()
    if kind == "misfit":
        state = {key: value[:9] for key, value in state.items()}
    if kind == "nan":
        state = {key: value * torch.nan for key, value in state.items()}
    if kind == "other keys":
        state = {f"x.{key}": value for key, value in state.items()}
    torch.save(linear() if kind == "pickle" else state, file)
    if kind == "cut":
        file.write_bytes(file.read_bytes()[:-300])
    if kind == "text":
        file.write_text("hello")
    if kind == "empty":
        file.write_bytes(b"")


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize(
    ("kind", "word"),
    [("cut", "whole"), ("text", "whole"), ("empty", "empty"), ("misfit", "fit"), ("nan", "NaN"), ("other keys", "fit"),
     ("pickle", "code")],
)  # fmt: skip
def test_bad_weights_are_refused_in_one_line(kind, word, suffix, robustkit, place):
    file = place / f"weights{suffix}"
    broken_weights(file, kind)
    # A file that torch wrote is not a safetensors file, whatever is in it.
    word = word if suffix == ".pt" or kind == "empty" else "whole"

    refused(robustkit(*SMALL, "--weights", file), file.name, word)


@pytest.mark.parametrize("kind", ["a file", "below a file"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(kind, robustkit, place):
    out = place / "net.py" if kind == "a file" else place / "net.py" / "run"

    refused(robustkit(*SMALL, "--out", out), "cannot be written", "--out")


def test_a_run_on_a_read_only_disk_can_be_shown_instead(robustkit, place, monkeypatch):
    (place / "run").mkdir()
    (place / "run" / "run.sqlite").touch()
    refuse = OSError(errno.EROFS, os.strerror(errno.EROFS))
    monkeypatch.setattr("tempfile.TemporaryFile", Mock(side_effect=refuse))

    refused(robustkit(*SMALL, "--out", "run"), "cannot be written", "robustkit show run")


def test_a_corrupt_evidence_file_is_refused_in_one_line(robustkit, place):
    (place / "run").mkdir()
    (place / "run" / "run.sqlite").write_bytes(bytes(range(256)) * 80)

    refused(robustkit(*SMALL, "--out", "run"), "run.sqlite")
    refused(robustkit("report", "run"), "run.sqlite")


def test_an_empty_evidence_file_cannot_be_reported(robustkit, place):
    (place / "run").mkdir()
    (place / "run" / "run.sqlite").touch()

    refused(robustkit("report", "run"), "run")


@pytest.mark.parametrize(
    "words",
    [["-m", "resnet81"], [*MODEL, *DATA, "--eps", "8"], ["-m", "net.py:crash", *DATA]],
    ids=["model", "eps", "crash"],
)  # fmt: skip
def test_a_refused_command_leaves_no_folder(words, robustkit, place):
    before = set(place.iterdir())
    robustkit(*RUN, *words, "--out", "run")
    robustkit(*RUN, *words)

    assert {entry.name for entry in set(place.iterdir()) - before} <= {"__pycache__"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names of files are always UTF-8")
def test_a_path_that_the_language_settings_do_not_know_is_refused_with_the_way_out(place):
    """In a config file; it was a "bug in robustkit"."""
    (place / "config.toml").write_text('out = "läufe"\n', encoding="utf-8")
    settings = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "robustkit", "evaluate", "--config", "config.toml"]
    ended = subprocess.run(command, cwd=place, env={**os.environ, **settings}, capture_output=True, check=False)

    assert ended.returncode == 2
    assert ended.stderr.decode().strip().endswith("language settings of this system (ascii); set PYTHONUTF8=1.")
