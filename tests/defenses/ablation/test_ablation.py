"""Whole ablations of a tiny network: plans carried out, kept, broken off and gone on with."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from robustkit.defenses import Recipe, finetune
from robustkit.defenses.ablation.ablation import ablate
from robustkit.defenses.ablation.cells import file_of
from robustkit.defenses.ablation.grid import axes_of, cells_of
from torch import nn

from robustkit import attack
from robustkit.errors import UserError
from robustkit.host.progress import Silent
from robustkit.primitives import registry
from tests.small import cnn, data

torch.set_num_threads(1)

BASE = Recipe(epochs=1, batch=32, attack="pgd:steps=1", lr=0.01, eps_warmup=0.0, select="pgd:steps=1")
GRID = {"freeze": ["none", "prefix:0"], "label_smoothing": [0.0, 0.2]}
TIMES = ("seconds_per_epoch",)


def ablated(out: Path | None = None, **changes: object):
    x, y = data(120)
    parts = [(x[start:end], y[start:end]) for start, end in ((0, 60), (60, 80), (80, 120))]
    told = {"eps": 0.1, "grid": GRID, "seeds": 2, "base": BASE, "judge": "pgd:steps=2", **changes}
    return ablate(told.pop("make_model", cnn), *parts, out=out, **told)


class Stopping(Silent):
    """Breaks the work off after so many trainings."""

    def __init__(self, after: int) -> None:
        self.left = after

    def say(self, text: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An ablation that was carried out, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return ablated(folder), folder


@pytest.fixture
def kept(whole, tmp_path) -> Path:
    """A copy of that folder."""
    shutil.copytree(whole[1], tmp_path / "kept")
    return tmp_path / "kept"


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "cells").iterdir()}


def test_every_cell_of_the_plan_is_trained_with_every_seed(whole):
    found, folder = whole

    assert list(found.frame.cell) == ["baseline", "freeze=prefix:0", "label_smoothing=0.2"]
    assert found.frame.seeds.tolist() == [2, 2, 2]
    assert list(zip(found.runs.cell, found.runs.seed, strict=True))[:2] == [("baseline", 0), ("baseline", 1)]
    assert found.missing == ()
    assert (found.frame.worst <= found.frame.ce).all()
    assert (found.frame.ce <= found.frame.clean).all()
    assert [path.name for path in folder.iterdir()] == ["cells"]


def test_a_cell_is_what_fine_tuning_and_attacking_by_hand_give(whole):
    x, y = data(120)
    network = cnn()
    finetune(network, (x[:60], y[:60]), (x[60:80], y[60:80]), eps=0.1, recipe=BASE.but(label_smoothing=0.2, seed=1))
    left = attack(network, x[80:], y[80:], registry.build("pgd:steps=2,loss=ce", "Linf", 0.1))

    runs = whole[0].runs
    (row,) = runs[(runs.cell == "label_smoothing=0.2") & (runs.seed == 1)].to_dict("records")
    assert (row["clean"], row["ce"]) == (left.clean_accuracy, left.robust_accuracy)


def test_frozen_cells_say_what_learns_and_what_memory_it_takes(whole):
    frame = whole[0].frame.set_index("cell")

    sizes = [weight.numel() for weight in cnn().parameters()]
    head = sum(weight.numel() for weight in cnn()[1].parameters())
    assert frame.learning_share["baseline"] == 1
    assert frame.learning_share["freeze=prefix:0"] == pytest.approx(head / sum(sizes))
    assert frame.outer_mib["freeze=prefix:0"] < frame.outer_mib["baseline"]


def test_the_same_call_again_trains_nothing_and_says_the_same(whole, kept):
    made: list[nn.Module] = []

    def make() -> nn.Module:
        made.append(cnn())
        return made[-1]

    again = ablated(kept, make_model=make)

    assert again.frame.to_csv() == whole[0].frame.to_csv()
    assert again.runs.to_csv() == whole[0].runs.to_csv()
    assert len(made) == 1  # to know the start


def test_an_ablation_that_was_broken_off_comes_to_the_same_bytes(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ablated(tmp_path, watch=Stopping(after=2))
    before = files(tmp_path)

    gone_on = ablated(tmp_path)

    assert len(before) == 2
    assert before.items() <= files(tmp_path).items()
    untimed = [frame.drop(columns=list(TIMES)).to_csv() for frame in (whole[0].frame, gone_on.frame)]
    assert untimed[0] == untimed[1]


def test_a_larger_grid_keeps_what_was_run(kept):
    before = files(kept)

    found = ablated(kept, grid={**GRID, "clip": [None, 1.0]})

    assert len(found.runs) == 8
    assert before.items() <= files(kept).items()


def moved() -> nn.Module:
    network = cnn()
    with torch.no_grad():
        network[1].bias += 1
    return network


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"eps": 0.2}, "another eps"),
        ({"base": BASE.but(lr=0.02)}, "another lr"),
        ({"judge": "pgd:steps=3"}, "another judge"),
        ({"grid": {"freeze": ["prefix:0", "none"]}}, "another freeze"),
        ({"make_model": moved}, "another start"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_changed_settings_are_refused(kept, changes, words):
    with pytest.raises(UserError, match=words):
        ablated(kept, **changes)


def test_a_budget_leaves_out_what_it_names_and_the_next_call_gets_further(tmp_path):
    first = ablated(tmp_path, budget=0.0)
    second = ablated(tmp_path, budget=0.0)

    assert list(first.runs.cell) == ["baseline"]
    assert len(first.missing) == 5
    assert first.missing[0] == "freeze=prefix:0, seed 0"
    assert list(second.runs.cell) == ["baseline", "freeze=prefix:0"]


def test_a_budget_that_suffices_leaves_out_nothing(kept):
    for file in sorted((kept / "cells").iterdir())[:2]:
        file.unlink()

    assert len(ablated(kept, budget=3600.0).runs) == 6


def test_a_training_that_diverges_stays_in_the_table(tmp_path):
    grid = {"lr": [0.01, 1e30]}
    found = ablated(tmp_path, grid=grid, seeds=1)

    assert found.frame.status.tolist() == ["finished", "diverged"]
    assert np.isnan(found.frame.worst[1])
    assert "lower lr" in found.runs.note[1]
    assert ablated(tmp_path, grid=grid, seeds=1).frame.to_csv() == found.frame.to_csv()


def test_a_training_that_collapses_stays_in_the_table_and_is_called_so():
    found = ablated(grid={"lr": [0.01, 300.0]}, seeds=1, base=BASE.but(epochs=3))

    assert found.frame.status.tolist() == ["finished", "collapsed"]
    assert found.frame.worst.notna().all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"plan": "half"}, "no plan called"),
        ({"judge": "square"}, "attack with a loss"),
        ({"grid": {"freeze": ["none", "prefix:nosuch"]}}, "In the cell freeze=prefix:nosuch"),
        ({"grid": {"objective": ["at", "tredes"]}}, "In the cell objective=tredes"),
        ({"grid": {"attack": ["pgd:steps=1", "pdg"]}}, "In the cell attack=pdg"),
        ({"grid": {"prior": ["none", "laplace"]}}, "In the cell prior=laplace"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_before_the_first_training(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        ablated(tmp_path, **changes)

    assert not list(tmp_path.iterdir())


def test_a_start_that_changes_between_cells_is_refused():
    starts = iter([cnn(), moved()])

    with pytest.raises(UserError, match="same start"):
        ablated(make_model=lambda: next(starts))


def test_files_of_cells_have_names_that_every_system_takes(tmp_path):
    for cell in cells_of(axes_of({"freeze": ["none", "0.0.*,*.bias", "x" * 300]}), "full"):
        name = file_of(tmp_path, cell, 0).name

        assert not set(name) & set('<>:"/\\|?*,; ')
        assert len(name) < 128
