"""Whole ablations of a tiny network: run, stored, interrupted and resumed."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from robustkit.defenses import Recipe, finetune
from robustkit.defenses.ablation.ablation import ablate
from robustkit.defenses.ablation.cells import file_of
from robustkit.defenses.ablation.grid import axes_of, cells_of
from robustkit.defenses.training.tensor_file import read_tensors, write_tensors
from torch import nn

from robustkit import attack
from robustkit.errors import UserError
from robustkit.host.progress import Silent
from robustkit.primitives import registry
from tests.small import cnn, data

torch.set_num_threads(1)
pytestmark = pytest.mark.usefixtures("all_judged_quickly")

BASE = Recipe(epochs=1, batch=32, attack="pgd:steps=1", lr=0.01, eps_warmup=0.0, select="pgd:steps=1")
GRID = {"freeze": ["none", "prefix:0"], "label_smoothing": [0.0, 0.2]}


def ablated(out: Path | None = None, last: int = 120, **changes: object):
    x, y = data(120)
    parts = [(x[start:end], y[start:end]) for start, end in ((0, 60), (60, 80), (80, last))]
    settings = {"eps": 0.1, "grid": GRID, "seeds": 2, "base": BASE, "judge": "pgd:steps=2", **changes}
    return ablate(settings.pop("make_model", cnn), *parts, out=out, **settings)


class Stopping(Silent):
    """Interrupts an ablation after some trainings."""

    def __init__(self, after: int) -> None:
        self.left = after

    def say(self, text: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(all_judged_quickly, tmp_path_factory):
    """A finished ablation and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return ablated(folder), folder


@pytest.fixture
def stored(whole, tmp_path) -> Path:
    """A copy of that folder."""
    shutil.copytree(whole[1], tmp_path / "stored")
    return tmp_path / "stored"


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder / "cells").iterdir()}


def test_every_cell_of_the_plan_is_trained_with_every_seed(whole):
    ablation, folder = whole

    assert list(ablation.frame.cell) == ["baseline", "freeze=prefix:0", "label_smoothing=0.2"]
    assert ablation.frame.seeds.tolist() == [2, 2, 2]
    assert list(zip(ablation.runs.cell, ablation.runs.seed, strict=True))[:2] == [("baseline", 0), ("baseline", 1)]
    assert ablation.missing == ()
    assert (ablation.frame.worst <= ablation.frame.ce).all()
    assert (ablation.frame.ce <= ablation.frame.clean).all()
    assert [path.name for path in folder.iterdir()] == ["cells"]


def test_a_cell_has_the_result_of_fine_tuning_and_attacking_by_hand(whole):
    x, y = data(120)
    network = cnn()
    finetune(network, (x[:60], y[:60]), (x[60:80], y[60:80]), eps=0.1, recipe=BASE.but(label_smoothing=0.2, seed=1))
    attacked = attack(network, x[80:], y[80:], registry.build("pgd:steps=2,loss=ce", "Linf", 0.1))

    runs = whole[0].runs
    (row,) = runs[(runs.cell == "label_smoothing=0.2") & (runs.seed == 1)].to_dict("records")
    assert (row["clean"], row["ce"]) == (attacked.clean_accuracy, attacked.robust_accuracy)


def test_frozen_cells_report_what_learns_and_its_memory(whole):
    frame = whole[0].frame.set_index("cell")

    sizes = [weight.numel() for weight in cnn().parameters()]
    head = sum(weight.numel() for weight in cnn()[1].parameters())
    assert frame.learning_share["baseline"] == 1
    assert frame.learning_share["freeze=prefix:0"] == pytest.approx(head / sum(sizes))
    assert frame.outer_mib["freeze=prefix:0"] < frame.outer_mib["baseline"]


def test_the_same_call_again_trains_nothing_and_has_the_same_result(whole, stored):
    models: list[nn.Module] = []

    def make_model() -> nn.Module:
        models.append(cnn())
        return models[-1]

    again = ablated(stored, make_model=make_model)

    assert again.frame.to_csv() == whole[0].frame.to_csv()
    assert again.runs.to_csv() == whole[0].runs.to_csv()
    assert len(models) == 1  # whose weights are hashed


def test_an_interrupted_ablation_resumes_to_the_same_bytes(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        ablated(tmp_path, seeds=1, watch=Stopping(after=2))
    before = files(tmp_path)

    resumed = ablated(tmp_path, seeds=1).runs
    runs = whole[0].runs

    assert len(before) == 2
    assert before.items() <= files(tmp_path).items()
    untimed = [each.drop(columns="seconds_per_epoch").to_csv(index=False) for each in (runs[runs.seed == 0], resumed)]
    assert untimed[0] == untimed[1]


def test_a_kill_after_an_outcome_was_stored_leaves_no_checkpoint_for_ever(stored):
    name = next((stored / "cells").iterdir()).stem
    (stored / "unfinished" / name).mkdir(parents=True)
    (stored / "unfinished" / name / "training.safetensors").write_bytes(b"left behind")
    ablated(stored)

    assert not (stored / "unfinished").exists()


def test_a_larger_grid_keeps_the_stored_outcomes(stored):
    before = files(stored)

    assert len(ablated(stored, grid={**GRID, "clip": [None, 1.0]}).runs) == 8
    assert before.items() <= files(stored).items()


def moved() -> nn.Module:
    network = cnn()
    with torch.no_grad():
        network[1].bias += 1
    return network


def smooth() -> nn.Module:
    """The same weights, and another activation: its outcomes were those of the network before."""
    network = cnn()
    network[0][0][2] = nn.SiLU()
    return network


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"eps": 0.2}, "another eps"), ({"base": BASE.but(lr=0.02)}, "another lr"),
        ({"judge": "pgd:steps=3"}, "another judge"), ({"make_model": moved}, "another model at the start; give"),
        ({"make_model": smooth}, "another model at the start; give"),
        ({"grid": {"freeze": ["prefix:0", "none"]}}, "another freeze"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_changed_settings_are_refused(stored, changes, words):
    with pytest.raises(UserError, match=words):
        ablated(stored, **changes)


@pytest.mark.parametrize("change", [
    {"outcome": {}}, {"outcome": {"seed": 99}}, {"outcome": {"status": "<script>"}}, {"outcome": {"note": 5}},
    {"identity": [1]}, {"outcome": 3}, {"verdicts": torch.full((40,), 5.0)}, {"verdicts": torch.ones(39) > 0},
], ids=str)  # fmt: skip
def test_a_damaged_outcome_is_refused_in_one_line(stored, change):
    # Verdicts of 5.0 made an accuracy of 257 %.
    file = next((stored / "cells").iterdir())
    groups, notes = read_tensors(file)
    outcome = change.get("outcome", notes["outcome"])
    changed = {**notes["outcome"], **outcome} if isinstance(outcome, dict) and outcome else outcome
    tests = {"test": {**groups["test"], "worst": change.get("verdicts", groups["test"]["worst"])}}
    write_tensors(file, tests, {"identity": change.get("identity", notes["identity"]), "outcome": changed})

    with pytest.raises(UserError, match=r"is damaged; remove it to train this cell again"):
        ablated(stored)


def test_a_budget_names_what_it_leaves_out_and_the_next_call_continues(tmp_path):
    first = ablated(tmp_path, max_time=0.0)
    second = ablated(tmp_path, max_time=0.0)

    assert list(first.runs.cell) == ["baseline"]
    assert len(first.missing) == 5
    assert first.missing[0] == "freeze=prefix:0, seed 0"
    assert list(second.runs.cell) == ["baseline", "freeze=prefix:0"]


def test_other_test_images_are_named_and_not_by_a_hash(stored):
    with pytest.raises(UserError, match="with other test images; give"):
        ablated(stored, last=119)


def test_a_large_budget_leaves_out_nothing(stored):
    for file in sorted((stored / "cells").iterdir())[:2]:
        file.unlink()

    assert len(ablated(stored, max_time=3600.0).runs) == 6


def test_a_training_that_diverges_stays_in_the_table(tmp_path):
    grid = {"lr": [0.01, 1e30]}
    ablation = ablated(tmp_path, grid=grid, seeds=1)

    assert ablation.frame.status.tolist() == ["finished", "diverged"]
    assert np.isnan(ablation.frame.worst[1])
    assert "lower lr" in ablation.runs.note[1]
    assert ablated(tmp_path, grid=grid, seeds=1).frame.to_csv() == ablation.frame.to_csv()


def test_a_training_that_collapses_stays_in_the_table_with_that_status():
    ablation = ablated(grid={"lr": [0.01, 300.0]}, seeds=1, base=BASE.but(epochs=3))

    assert ablation.frame.status.tolist() == ["finished", "collapsed"]
    assert ablation.frame.worst.notna().all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": 0}, "seeds must be at least 1"), ({"design": "half"}, "no design called"),
        ({"judge": "square"}, "attack with a loss"),
        ({"grid": {"freeze": ["none", "prefix:nosuch"]}}, "In the cell freeze=prefix:nosuch"),
        ({"grid": {"objective": ["at", "tredes"]}}, "In the cell objective=tredes"),
        ({"grid": {"attack": ["pgd:steps=1", "pdg"]}}, "In the cell attack=pdg"),
        ({"grid": {"prior": ["none", "laplace"]}}, "In the cell prior=laplace"),
        ({"grid": {"lr": 0.1}}, "needs a list of values"), ({"grid": {"bn": "batch"}}, "needs a list of values"),
        ({"grid": {"seed": [0, 1]}}, "seeds="), ({"make_model": cnn()}, "make_model is a model"),
        ({"max_time": float("nan")}, "max_time must be"), ({"max_time": -1.0}, "max_time must be"),
    ],
    ids=str,
)  # fmt: skip
def test_a_grid_that_cannot_be_run_is_refused_before_the_first_training(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        ablated(tmp_path, **changes)

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", [lambda x, y: (x.expand(-1, 3, -1, -1), y), lambda x, y: (x, y + 7)])
def test_test_images_that_the_model_does_not_take_are_refused_before_the_first_training(change):
    # They were looked at after a whole training.
    x, y = data(120)
    with pytest.raises(UserError, match=r"On the test images: (The model does not take|The data have classes)"):
        ablate(cnn, (x[:60], y[:60]), (x[60:80], y[60:80]), change(x[80:], y[80:]), eps=0.1, grid=GRID, base=BASE,
               watch=Stopping(1))  # fmt: skip


def test_a_start_that_changes_between_cells_is_refused():
    starts = iter([cnn(), moved()])

    with pytest.raises(UserError, match="other weights, settings or code than before"):
        ablated(make_model=lambda: next(starts))


@pytest.mark.parametrize("role", ["attack", "judge"])
def test_outcomes_were_kept_after_an_edit_of_an_own_attack(tmp_path, role):
    file, out = tmp_path / "mine.py", tmp_path / "out"
    file.write_text("from robustkit.attacks import PGD\n\nclass Climb(PGD):\n    pass\n")
    own = f"{file}:Climb:steps=1"
    changes = {"judge": own} if role == "judge" else {"base": BASE.but(attack=own)}
    ablated(out, grid={"label_smoothing": [0.0, 0.2]}, seeds=1, **changes)
    file.write_text(file.read_text().replace("pass", "power = 2"))

    with pytest.raises(UserError, match="other code of an attack"):
        ablated(out, grid={"label_smoothing": [0.0, 0.2]}, seeds=1, **changes)


def test_outcomes_were_kept_after_an_edit_of_an_own_loss(tmp_path):
    file, out = tmp_path / "mine.py", tmp_path / "out"
    file.write_text("def climb(logits, y):\n    return -logits.gather(1, y[:, None])[:, 0]\n")
    changes = {"base": BASE.but(attack=f"pgd:steps=1,loss={file}:climb"), "grid": {"lr": [0.01, 0.02]}, "seeds": 1}
    ablated(out, **changes)
    file.write_text(file.read_text().replace("-logits", "-2 * logits"))

    with pytest.raises(UserError, match="other code of an attack"):
        ablated(out, **changes)


class Scaled(nn.Module):
    """A network that reads a number which no hash of weights, settings and code covers."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self._scale, self.network = scale, cnn()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(self._scale * x)


def test_outcomes_of_a_network_with_another_private_value_were_kept(tmp_path):
    changes = {"grid": {"lr": [0.01, 0.02]}, "seeds": 1}
    ablated(tmp_path, make_model=lambda: Scaled(1.0), **changes)

    with pytest.raises(UserError, match="its answers are not"):
        ablated(tmp_path, make_model=lambda: Scaled(0.5), **changes)


def test_files_of_cells_have_names_that_every_system_accepts(tmp_path):
    for cell in cells_of(axes_of({"freeze": ["none", "0.0.*,*.bias", "x" * 300]}), "full"):
        name = file_of(tmp_path, cell, 0).name

        assert not set(name) & set('<>:"/\\|?*,; ')
        assert len(name) < 128
