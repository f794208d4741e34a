"""Trainings that are broken off go on bit for bit."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from robustkit.defenses import finetune
from robustkit.defenses.training import training

from robustkit.errors import UserError
from tests.defenses.crash import ALL, SHORT, StopError, run
from tests.defenses.nets import TRAIN, VAL, changed, net, state

ROOT = Path(__file__).parents[3]
ADAMW = SHORT.but(optimizer="adamw", lr=1e-3, objective="trades:2", bn="split", guard=False)
BF16 = SHORT.but(bf16=True, awp=0.01, ema=0.9, attack="apgd:steps=2")
FREE = SHORT.but(attack="free:3", eps_warmup=0.5)


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(training, "_KEEP_SECONDS", 0.0)


def assert_same(one, other) -> None:
    (network, found), (its, theirs) = one, other
    assert changed(network, state(its)) == set()
    assert found.history.drop(columns="seconds").equals(theirs.history.drop(columns="seconds"))
    assert (found.best, found.start, found.best_epoch, found.notes) == (
        theirs.best, theirs.start, theirs.best_epoch, theirs.notes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("recipe", "steps"),
    [(ALL, (1, 4, 8)), (ADAMW, (6,)), (FREE, (17,)), (BF16, (7,))],
    ids=["all", "adamw", "free", "bf16"],
)
def test_broken_off_anywhere_it_ends_as_if_left_alone(tmp_path, recipe, steps):
    whole = run(None, recipe)
    for step in steps:
        folder = tmp_path / str(step)
        with pytest.raises(StopError):
            run(folder, recipe, step)

        assert_same(run(folder, recipe), whole)


def test_broken_off_again_and_again(tmp_path):
    for step in (2, 2, 1, 3):
        with pytest.raises(StopError):
            run(tmp_path, ALL, step)

    assert_same(run(tmp_path), run(None))


def test_killed_it_ends_as_if_left_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.defenses.crash", str(tmp_path), "4"], cwd=ROOT, check=False, capture_output=True
    )

    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert_same(run(tmp_path), run(None))


def test_a_training_that_is_over_is_not_done_again(tmp_path, monkeypatch):
    first = run(tmp_path)
    monkeypatch.setattr(training.Training, "_step", None)

    assert_same(run(tmp_path), first)


def test_a_roll_back_is_remembered(tmp_path, monkeypatch):
    recipe = SHORT.but(epochs=3, attack="fgsm", lr=1e-4)
    calls = iter([False, True, False, False, True, False])
    monkeypatch.setattr("robustkit.defenses.training.guards.overfitted", lambda inner, worst: next(calls))
    whole = run(None, recipe)
    assert list(whole[1].history["rolled_back"]) == [False, True, False]

    with pytest.raises(StopError):
        run(tmp_path, recipe, 12)

    assert_same(run(tmp_path, recipe), whole)


@pytest.mark.parametrize(
    ("changes", "words"), [({"lr": 0.01}, "recipe, lr"), ({"seed": 1}, "seed"), ({"freeze": "conv1"}, "freeze")]
)
def test_other_settings_are_refused(tmp_path, changes, words):
    run(tmp_path, SHORT)
    before = (tmp_path / "training.safetensors").read_bytes()

    with pytest.raises(UserError, match=f"another training .*{words}"):
        run(tmp_path, SHORT.but(**changes))
    assert (tmp_path / "training.safetensors").read_bytes() == before


def test_another_network_is_refused(tmp_path, monkeypatch):
    run(tmp_path, SHORT)
    from tests.defenses import crash, nets

    def other(dropout):
        found = nets.net(dropout)
        with torch.no_grad():
            found.fc.bias[0] += 1e-3
        return found

    monkeypatch.setattr(crash, "net", other)
    with pytest.raises(UserError, match="its model differs"):
        run(tmp_path, SHORT)


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "foreign", "half"])
def test_a_broken_file_is_named(tmp_path, damage):
    run(tmp_path, SHORT)
    file = tmp_path / "training.safetensors"
    raw = file.read_bytes()
    if damage in ("foreign", "half"):
        from robustkit.defenses.training.keeping import keep, kept

        found = kept(file)
        groups = {"weights": {"x": torch.ones(1)}}
        keep(
            file,
            groups if damage == "foreign" else {**found.groups, **groups},
            {} if damage == "foreign" else found.notes,
        )
    else:
        file.write_bytes({"cut": raw[: len(raw) // 2], "garbage": b"\x00" * 100, "empty": b""}[damage])

    with pytest.raises(UserError, match="another --out"):
        run(tmp_path, SHORT)


def test_a_file_that_is_not_whole_leaves_the_model_as_it_was(tmp_path):
    from robustkit.defenses.training.keeping import keep, kept

    run(tmp_path, SHORT)
    file = tmp_path / "training.safetensors"
    found = kept(file)
    keep(file, {name: group for name, group in found.groups.items() if name != "best"}, found.notes)
    network = net()
    before = state(network)

    with pytest.raises(UserError, match="not whole"):
        finetune(network, TRAIN, VAL, eps=0.1, recipe=SHORT, out=tmp_path)
    assert changed(network, before) == set()


def test_nothing_but_the_file_is_left(tmp_path):
    (tmp_path / ".training.safetensors.abc.part").write_bytes(b"of a training that was killed while writing")
    run(tmp_path, SHORT)

    assert [path.name for path in tmp_path.iterdir()] == ["training.safetensors"]
