"""A training in two processes compared with the same in one."""

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch
from robustkit.defenses import ablate
from robustkit.defenses.training.team import Team

from robustkit.errors import UserError
from tests.cli.conftest import NET
from tests.defenses.nets import SHORT, TRAIN, VAL, net
from tests.defenses.team import MOVING, RECIPES, played

ROOT = Path(__file__).parents[3]
SECONDS = 300  # for a busy machine; a process that hangs is ended
# Sums in another order: after ten steps some units in the last place of the weights, which are about 1.
CLOSE = {"atol": 2e-6, "rtol": 1e-5}

pytestmark = pytest.mark.slow  # several processes, each of which imports torch


class Ends(NamedTuple):
    first: dict[str, Any]
    second: dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The folder that both processes write to."""
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def pair(folder) -> Ends:
    """The results of all scenes in each of two processes."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.defenses.team", str(folder), str(number)], cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True,
        )
        for number in (0, 1)
    ]  # fmt: skip
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(process.returncode for process in processes), errors
    # A warning of torch's wrapper, which a user could do nothing about.
    assert not any("find_unused_parameters" in text for text in errors)
    return Ends(*(torch.load(folder / f"{number}.pt", weights_only=False) for number in (0, 1)))


def same_bits(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("name", RECIPES)
def test_two_processes_learn_what_one_does(name, pair, tmp_path):
    one, first = played(name, tmp_path), pair.first[name]

    assert one["history"]["best"] == first["history"]["best"] == [True, True]
    torch.testing.assert_close(first["state"], one["state"], **CLOSE)
    assert first["history"]["loss"] == pytest.approx(one["history"]["loss"], rel=1e-5)
    assert first["history"]["train_attacked"] == one["history"]["train_attacked"]


@pytest.mark.parametrize("name", [*RECIPES, *MOVING, "unused", "dropout", "judged", "judged, clean", "interrupted"])
def test_both_end_with_the_same_bits(name, pair):
    first, second = pair.first[name], pair.second[name]

    assert same_bits(first["state"], second["state"])
    assert first.get("history") == second.get("history")


@pytest.mark.parametrize("name", ["judged", "judged, clean"])
def test_both_choose_the_same_epoch_from_the_start_of_the_first(name, pair, tmp_path):
    one = played(name, tmp_path)

    for ends in pair:
        assert (ends[name]["start"], ends[name]["best"]) == (one["start"], one["best"])
        torch.testing.assert_close(ends[name]["state"], one["state"], **CLOSE)


def test_noise_depends_on_images_and_not_on_processes(pair, tmp_path):
    x, key, x_adv = played("first attack", tmp_path)["seen"]
    expected = key.argsort()
    parts = [ends["first attack"]["seen"] for ends in pair]
    both = [torch.cat(pieces) for pieces in zip(*parts, strict=True)]
    order = both[1].argsort()

    assert [len(part[1]) for part in parts] == [32, 30]
    assert torch.equal(both[1][order], key[expected])
    assert torch.equal(both[0][order], x[expected])
    torch.testing.assert_close(both[2][order], x_adv[expected])


def test_an_attack_exchanges_nothing_and_triggers_no_hook(pair):
    # The first process attacked three more times: if an attack exchanged anything, it would wait for ever.
    for ends in pair:
        assert ends["alone in the attack"]["untouched"]
        assert ends["alone in the attack"]["no gradients"]
        assert ends["alone in the attack"]["report"][2] == 32


def test_running_statistics_are_the_mean_over_processes(pair):
    first, second = (ends["blended"] for ends in pair)
    names = [name for name in first["state"] if name.endswith("running_var")]

    assert same_bits(first["state"], second["state"])
    for name, one, other in zip(names[1:], first["own"][1:], second["own"][1:], strict=True):
        torch.testing.assert_close(first["state"][name], 0.75 * one + 0.25 * other)
    # Frozen statistics keep their bits.
    assert torch.equal(first["state"]["bn1.running_mean"], torch.full((8,), 1 / 3))


def test_a_weight_that_no_loss_depends_on_stays_as_the_first_process_has_it(pair):
    state = pair.second["unused"]["state"]

    assert torch.equal(state["aside.weight"], torch.ones(3, 3))
    assert torch.equal(state["inner.conv1.weight"], net().conv1.weight)


def test_each_process_draws_its_own_dropout(pair):
    first, second = (ends["dropout"] for ends in pair)

    assert (first["stayed"] & second["dropped"]).any()


def test_interrupted_in_one_process_both_resume_from_the_checkpoint(pair, tmp_path):
    texts = [ends["interrupted"]["error text"] for ends in pair]

    assert texts == [
        "InterruptedError: here", "UserError: Process 0 of the training failed (InterruptedError: here).",
    ]  # fmt: skip
    expected = played("interrupted", tmp_path)["state"]
    torch.testing.assert_close(pair.second["interrupted"]["state"], expected, **CLOSE)


def test_one_process_does_not_resume_the_checkpoint_of_two(pair, folder, tmp_path):
    assert "state" in pair.first["interrupted"]
    shutil.copytree(folder / "kept", tmp_path / "kept")

    error = played("interrupted", tmp_path)["error"]

    assert error.startswith("UserError")
    assert "its number of processes differs" in error


LOSS = "Diverged: In epoch 1 of 2: The loss became nan"
GRADIENT = "Diverged: In epoch 1 of 2: The input gradient became NaN or infinite"
DIFFERENT = "UserError: Process 1 was given another training than process 0 (its recipe, lr, differs)"
TOO_SMALL = "UserError: A batch of 3 is too small for 2 processes"
REPORTED = "UserError: Process 1 of the training failed (ZeroDivisionError: first line)."


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("loss", LOSS, LOSS), ("gradient", GRADIENT, GRADIENT), ("different", DIFFERENT, DIFFERENT),
        ("too small", TOO_SMALL, TOO_SMALL), ("raises", REPORTED, "ZeroDivisionError: first line\nsecond line"),
    ],
)  # fmt: skip
def test_an_error_in_one_process_ends_both(name, first, second, pair):
    assert pair.first[name]["error"].startswith(first)
    assert pair.second[name]["error"].startswith(second)


def test_nobody_waits_for_a_process_that_has_ended(pair):
    assert "process of this training was ended" in pair.first["dies"]["error"]
    assert "dies" not in pair.second


@pytest.mark.parametrize(("count", "shares"), [(7, [[0, 3, 6], [1, 4], [2, 5]]), (5, [[0, 1, 2, 3, 4]] * 3)])
def test_every_image_of_a_batch_is_used_equally(count, shares):
    teams = [Team(rank, 3) for rank in range(3)]

    assert [list(range(count))[team.share(count)] for team in teams] == shares
    counted = [number for team in teams for number in list(range(count))[team.own(count)]]
    assert sorted(counted) == list(range(count))
    assert {team.copies(count) for team in teams} == {3 if count < 6 else 1}


@pytest.mark.parametrize(
    ("places", "accepted"),
    [
        ([("a", "cuda:0"), ("a", "cuda:0")], False), ([("a", "cuda:0"), ("a", "cpu")], False),
        ([("a", "cuda:0"), ("b", "cuda:0")], True), ([("a", "cpu"), ("a", "cpu")], True),
    ],
)  # fmt: skip
def test_no_two_processes_share_a_gpu(places, accepted, monkeypatch):
    monkeypatch.setattr(Team, "_gathered", lambda self, own: places)
    with nullcontext() if accepted else pytest.raises(UserError, match="a GPU of its own"):
        Team(0, 2, torch.device("cpu")).check_devices()


def as_process(monkeypatch, rank: int, size: int) -> None:
    """Set the variables that torchrun sets."""
    for name, value in {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, str(value))


def test_an_ablation_is_one_process(monkeypatch):
    as_process(monkeypatch, 0, 2)

    with pytest.raises(UserError, match="without torchrun"):
        ablate(net, TRAIN, VAL, VAL, eps=0.1, grid={"lr": [0.1, 0.2]}, base=SHORT)


def torchrun(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`robustkit finetune WORDS...` in two processes."""
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "robustkit",
         "finetune", "-q", "-m", "net.py:factory", "--eps", "0.1", "--preset", "fast", "-a", "fgsm",
         "--set", "select=pgd:steps=2", "--out", "tuned", *words],
        cwd=place, capture_output=True, text=True, check=False, timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_torchrun_tunes_and_reports_once(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    done = torchrun(tmp_path, "--set", "epochs=1", "--set", "lr=0.01")

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Evaluate it: robustkit evaluate") == 1
    assert pd.read_csv(tmp_path / "tuned" / "history.csv").epoch.tolist() == [1]
    assert pd.read_csv(tmp_path / "tuned" / "results.csv").model.unique().tolist() == [
        "net.factory", "net.factory-tuned",
    ]  # fmt: skip


def test_torchrun_reports_an_error_once(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    done = torchrun(tmp_path, "--set", "batch=2")

    assert done.returncode != 0
    assert done.stderr.count("Error: A batch of 2 is too small for 2 processes") == 1
    assert not (tmp_path / "tuned").exists()
