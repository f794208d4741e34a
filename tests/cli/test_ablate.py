"""`robustkit ablate`: what it writes, how it resumes, and what it refuses."""

import re
import sys

import pandas as pd
import pytest

from robustkit.data import other_split
from robustkit.errors import UserError
from tests.cli.conftest import MODEL, without

QUICK = ("--set", "epochs=1", "--set", "attack=pgd:steps=1", "--set", "select=pgd:steps=1", "--judge", "pgd:steps=2")
SMALL = ("ablate", "-q", *MODEL, *QUICK, "-n", "40", "--seeds", "1", "--eps", "0.1")
GRID = ("-g", "label-smoothing=0,0.2", "-g", "nesterov=true,false")


def test_a_grid_becomes_a_table_a_page_and_files_and_is_extended(robustkit, place):
    printed = robustkit(*SMALL, *GRID, "-o", "out")
    frame = pd.read_csv(place / "out" / "ablation.csv")
    again = robustkit(*SMALL, *GRID, "-g", "clip=none,1", "-o", "out")

    assert printed.status == again.status == 0
    assert list(frame.cell) == ["baseline", "label_smoothing=0.2", "nesterov=false"]
    assert (frame.n == 40).all()
    for cell in frame.cell:
        assert cell in printed.out
        assert cell in (place / "out" / "ablation.html").read_text(encoding="utf-8")
    assert len(pd.read_csv(place / "out" / "ablation-runs.csv")) == 4


def test_a_plan_trains_and_writes_nothing(robustkit, place):
    printed = robustkit(*SMALL, *GRID, "--design", "full", "--plan", "-o", "out")

    assert printed.status == 0
    assert "4 trainings" in printed.out
    assert "label_smoothing=0.2, nesterov=false, seed 0" in printed.out
    assert "in units of a forward pass" in printed.out
    assert not (place / "out").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "No grid is given"),
        (("-g", "freeze"), "not an axis of a grid"),
        (("-g", "freze=none,all"), "did you mean freeze"),
        (("-g", "freeze=none,prefix:layer9"), "layer9"),
        (("-g", "nesterov=true,false", "-g", "momentum=0.9,0", "--design", "full"), "momentum=0"),
        (("-g", "nesterov=true,false", "--max-time", "ten"), "not a duration"),
        (("-g", "nesterov=true,false", "--design", "some"), "main-effects"),
        (("-g", "nesterov=true,false", "--judge", "square"), "with a loss"),
        (("-g", "nesterov=true,false", "--preset", "save"), "did you mean safe"),
        (("-g", "nesterov=true,false", "--set", "seed=3"), "--seeds"),
        (("-g", "select=pgd:steps=1,square"), "In the cell select=square: Epochs are chosen"),
        (("-g", "attack=pgd:steps=1,apgd-t"), "In the cell attack=apgd-t"),
        (("-g", "fresh=1,head", "--set", "prior=l2sp:0.1"), "In the cell fresh=head: There is no parameter"),
        (("-g", "freeze=none,0:none;1:1.bias"), "In the cell freeze=0:none;1:1.bias: freeze="),
        (("-g", "freeze=none,0:none;1:layr", "--set", "epochs=2"), "In the cell freeze=0:none;1:layr: freeze='layr'"),
        (("-m", "net.py:other", "-g", "batch=64,1"), "In the cell batch=1: BatchNorm"),
        (("-g", "lr=1,1.0"), "all different"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.parametrize("plan", [(), ("--plan",)], ids=str)
def test_an_ablation_that_cannot_be_run_is_refused_in_one_line(robustkit, place, words, expected, plan):
    start = without(SMALL, *{"--judge", "-m"}.intersection(words))
    printed = robustkit(*start, *words, *plan, "-o", "out")

    assert printed.status == 2
    assert re.fullmatch(rf"Error: .*{re.escape(expected)}.*\n", printed.err)
    assert printed.out == ""
    assert not (place / "out").exists()


def test_another_setting_in_the_same_folder_is_refused(robustkit):
    robustkit(*SMALL, "-g", "nesterov=true,false", "--max-time", "1s", "-o", "out")

    printed = robustkit(*SMALL, "-g", "nesterov=true,false", "--set", "lr=0.001", "-o", "out")

    assert printed.status == 2
    assert "another lr" in printed.err


def test_fewer_test_images_are_still_of_the_same_data_set(robustkit, monkeypatch):
    # A model that has to be trained first asks the data set for its other splits.
    seen = []

    def loaded(options, data, bars):
        seen.append(data)
        raise UserError("Enough is known.")

    monkeypatch.setattr(sys.modules["robustkit.cli.ablate"], "model_of", loaded)
    robustkit(*SMALL, *GRID, "-o", "out")

    assert len(other_split(seen[0], "train")) == 1099
