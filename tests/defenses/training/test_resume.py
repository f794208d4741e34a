"""Trainings that are interrupted resume bit for bit."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from robustkit.attacks import PGD
from robustkit.defenses import drop_weights, finetune
from robustkit.defenses.training import training
from robustkit.defenses.training.tensor_file import read_tensors, write_tensors
from safetensors.torch import save, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from robustkit import Classifier
from robustkit.errors import UserError
from tests.defenses import crash, nets
from tests.defenses.crash import ALL, DIGITS, SHORT, StopError, killed, run, stop
from tests.defenses.doubles import at_step
from tests.defenses.nets import VAL, changed, judge_quickly, net, same_weights, state

ADAMW = SHORT.but(optimizer="adamw", lr=1e-3, objective="trades:2", bn="split", guard=False)
BF16 = SHORT.but(bf16=True, awp=0.01, ema=0.9, attack="apgd:steps=2")
FREE = SHORT.but(attack="free:3", eps_warmup=0.5)


@pytest.fixture(scope="module", autouse=True)
def _checkpoint_after_each_step():
    with pytest.MonkeyPatch.context() as patch:
        judge_quickly(patch)
        patch.setattr(training, "_CHECKPOINT_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def whole():
    """The training with everything switched on, never interrupted."""
    return run(None)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Path:
    """The file of a short training that was interrupted."""
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(StopError):
        run(folder, SHORT.but(epochs=1), step=2)
    return folder / "training.safetensors"


@pytest.fixture
def checkpoint(interrupted, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copy(interrupted, tmp_path))


def assert_same(one, other) -> None:
    (network, result), (other_network, other_result) = one, other
    assert same_weights(network, other_network)
    assert result.history.drop(columns="seconds").equals(other_result.history.drop(columns="seconds"))
    for field in ("best", "start", "best_epoch", "notes"):
        assert getattr(result, field) == getattr(other_result, field)


def test_interrupted_several_times_it_ends_as_if_never_interrupted(tmp_path, whole):
    for step in (1, 2, 1, 3):
        with pytest.raises(StopError):
            run(tmp_path, ALL, step)

    assert_same(run(tmp_path), whole)


@pytest.mark.parametrize(("recipe", "step"), [(ADAMW, 4), (FREE, 11), (BF16, 5)], ids=["adamw", "free", "bf16"])
def test_every_kind_of_state_is_in_the_checkpoint(tmp_path, recipe, step):
    with pytest.raises(StopError):
        run(tmp_path, recipe, step)

    assert_same(run(tmp_path, recipe), run(None, recipe))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_it_ends_as_if_never_interrupted(tmp_path, whole):
    assert killed(tmp_path, 3)
    assert_same(run(tmp_path), whole)


def test_a_finished_training_takes_no_further_step(tmp_path, monkeypatch):
    recipe = ALL.but(epochs=1, freeze="all-but:fc")
    first = run(tmp_path, recipe)
    monkeypatch.setattr(training.Training, "_step", None)

    assert_same(run(tmp_path, recipe), first)


def test_a_finished_training_keeps_no_state_to_go_on_from(tmp_path):
    network, _ = run(tmp_path, SHORT.but(epochs=1))
    content = read_tensors(tmp_path / "training.safetensors")

    assert set(content.groups) == {"best"}
    assert set(content.groups["best"]) == set(network.state_dict())


def test_a_finished_training_may_leave_its_weights_to_the_model_file(tmp_path):
    network, first = run(tmp_path, SHORT.but(epochs=1))
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    drop_weights(tmp_path)
    assert not read_tensors(tmp_path / "training.safetensors").groups
    assert_same(run(tmp_path, SHORT.but(epochs=1)), (network, first))

    save_file({name: value + 1 for name, value in network.state_dict().items()}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="missing or was changed"):
        run(tmp_path, SHORT.but(epochs=1))


def test_weights_that_the_model_file_does_not_have_are_kept(tmp_path):
    run(tmp_path, SHORT.but(epochs=1))
    save_file({"other": torch.ones(1)}, tmp_path / "model.safetensors")
    drop_weights(tmp_path)

    assert set(read_tensors(tmp_path / "training.safetensors").groups) == {"best"}


def test_a_roll_back_is_in_the_checkpoint(tmp_path, monkeypatch):
    recipe = SHORT.but(epochs=3, attack="fgsm", lr=1e-4)
    calls = iter([False, True, False, False, True, False])
    monkeypatch.setattr("robustkit.defenses.training.guards.overfitted", lambda inner, worst: next(calls))
    whole = run(None, recipe)
    assert list(whole[1].history["rolled_back"]) == [False, True, False]

    with pytest.raises(StopError):
        run(tmp_path, recipe, 8)

    assert_same(run(tmp_path, recipe), whole)


@pytest.mark.parametrize(
    ("changes", "words"), [({"lr": 0.01}, "recipe, lr"), ({"seed": 1}, "seed"), ({"freeze": "conv1"}, "freeze")]
)
def test_other_settings_are_refused(checkpoint, changes, words):
    before = checkpoint.read_bytes()

    with pytest.raises(UserError, match=f"another training .*{words}"):
        run(checkpoint.parent, SHORT.but(epochs=1, **changes))
    assert checkpoint.read_bytes() == before


def test_another_network_is_refused(checkpoint, monkeypatch):
    def other(dropout):
        network = nets.net(dropout)
        with torch.no_grad():
            network.fc.bias[0] += 1e-3
        return network

    monkeypatch.setattr(crash, "net", other)
    with pytest.raises(UserError, match="its model differs"):
        run(checkpoint.parent, SHORT.but(epochs=1))


_WEIGHT = "conv1.weight"
_TENSORS = {
    "a weight that is NaN": ("weights", _WEIGHT, lambda weight: weight * float("nan")),
    "a best weight that is NaN": ("best", _WEIGHT, lambda weight: weight * float("nan")),
    "a best weight of another shape": ("best", _WEIGHT, lambda weight: weight[:1]),
    "an optimizer of another shape": ("optimizer", "0.momentum_buffer", lambda value: value[:1]),
}
_NOTES = {
    "a step that is a text": {"step": "x"}, "half a step": {"step": 2.5}, "a negative step": {"step": -5},
    "a step beyond the end": {"step": 10**9}, "rows that are a text": {"rows": "abc"}, "a score of texts": {
        "best": {"clean": "x", "ce": 0, "worst": 0}}, "a score without values": {"best": {}},
    "no warmup": {"warmup": None}, "an unknown entry": {"zzz": 1},
}  # fmt: skip


def damage(file: Path, kind: str) -> None:
    raw, content = file.read_bytes(), read_tensors(file)
    foreign = {"weights": {"x": torch.ones(1)}}
    if kind == "foreign":
        write_tensors(file, foreign, {})
    elif kind == "other weights":
        write_tensors(file, {**content.groups, **foreign}, content.notes)
    elif kind in _TENSORS:
        group, name, change = _TENSORS[kind]
        changed_group = {**content.groups[group], name: change(content.groups[group][name])}
        write_tensors(file, {**content.groups, group: changed_group}, content.notes)
    elif kind in _NOTES:
        progress = {**content.notes["progress"], **_NOTES[kind]}
        write_tensors(file, content.groups, {**content.notes, "progress": progress})
    elif kind == "notes that are a list":
        file.write_bytes(save({"x": torch.ones(1)}, {"notes": "[1, 2]"}))
    elif kind == "nested notes":
        file.write_bytes(save({"x": torch.ones(1)}, {"notes": "[" * 100_000}))
    elif kind == "without the best weights":
        write_tensors(file, {name: group for name, group in content.groups.items() if name != "best"}, content.notes)
    else:
        file.write_bytes({"cut": raw[: len(raw) // 2], "garbage": b"\x00" * 100, "empty": b""}[kind])


@pytest.mark.parametrize(
    "kind", ["cut", "garbage", "empty", "foreign", "other weights", "without the best weights", "notes that are a list",
             "nested notes", *_TENSORS, *_NOTES]
)  # fmt: skip
def test_a_broken_checkpoint_is_named_and_leaves_the_model_unchanged(checkpoint, kind):
    damage(checkpoint, kind)
    network = net(dropout=0.3)
    before = state(network)

    with pytest.raises(UserError, match="another --out"):
        finetune(network, DIGITS, VAL, eps=0.1, recipe=SHORT.but(epochs=1), out=checkpoint.parent)
    assert changed(network, before) == set()


def test_only_the_checkpoint_is_left_in_the_folder(tmp_path):
    (tmp_path / ".training.safetensors.abc.part").write_bytes(b"of a training that was killed while writing")
    run(tmp_path, SHORT.but(epochs=1))

    assert [path.name for path in tmp_path.iterdir()] == ["training.safetensors"]


def unlike(kind: str) -> Classifier:
    """A network whose weights do not say what it computes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)]
    layers[2] = nn.SiLU() if kind == "activation" else layers[2]
    return Classifier(nn.Sequential(*layers), mean=[0.9 if kind == "normalisation" else 0.3], std=[0.4])


@pytest.mark.parametrize("kind", ["activation", "normalisation"])
def test_another_network_with_the_same_weights_got_the_stored_training(tmp_path, kind):
    recipe = SHORT.but(epochs=1)
    finetune(unlike(""), DIGITS, VAL, eps=0.1, recipe=recipe, out=tmp_path)

    with pytest.raises(UserError, match="its model differs"):
        finetune(unlike(kind), DIGITS, VAL, eps=0.1, recipe=recipe, out=tmp_path)


class Scaled(nn.Module):
    """A network that reads a number which no hash of weights, settings and code covers."""

    def __init__(self, scales: object) -> None:
        super().__init__()
        self._scales, self.network = scales, net()

    def forward(self, x: Tensor) -> Tensor:
        return self.network(self._scales[0] * x)


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor])
def test_a_network_with_another_private_value_got_the_stored_training(tmp_path, kind):
    recipe = SHORT.but(epochs=1)
    finetune(Scaled(kind([1.0])), DIGITS, VAL, eps=0.1, recipe=recipe, out=tmp_path)
    finetune(Scaled(kind([1.0])), DIGITS, VAL, eps=0.1, recipe=recipe, out=tmp_path)

    with pytest.raises(UserError, match="its answers before the training are not"):
        finetune(Scaled(kind([0.5])), DIGITS, VAL, eps=0.1, recipe=recipe, out=tmp_path)


def test_an_attack_object_with_an_own_loss_could_not_be_stored(tmp_path):
    def trained(sign: float):
        attack = PGD(0.1, steps=2, loss=lambda logits, y: sign * F.cross_entropy(logits, y, reduction="none"))
        return finetune(net(), DIGITS, VAL, eps=0.1, recipe=SHORT.but(epochs=1, attack=attack), out=tmp_path)

    first = trained(1.0)

    assert trained(1.0).history.equals(first.history)
    with pytest.raises(UserError, match="another training"):
        trained(-1.0)


class Drifting(nn.Module):
    """A network that follows its images in a buffer outside of the state dict, and draws from Python and numpy."""

    def __init__(self) -> None:
        super().__init__()
        self.network = net()
        self.register_buffer("mean", torch.zeros(()), persistent=False)
        self.register_buffer("mask", torch.full((2,), -torch.inf), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean += 0.1 * (x.mean().detach() - self.mean)
            x = x + 0.1 * random.random() + 0.1 * np.random.rand()
        return self.network(x - self.mean)


def drifted(folder: Path | None, step: int = 0):
    network = Drifting()
    result = finetune(network, DIGITS, VAL, eps=0.1, recipe=SHORT, out=folder, watch=at_step(step, stop))
    return network, result


def test_buffers_outside_of_the_state_dict_and_random_numbers_of_python_differed_after_a_kill(tmp_path):
    whole = drifted(None)
    with pytest.raises(StopError):
        drifted(tmp_path, 4)
    resumed = drifted(tmp_path)

    assert_same(resumed, whole)
    assert resumed[0].mean == whole[0].mean == drifted(tmp_path)[0].mean


def test_a_training_left_the_random_state_of_python_and_numpy_changed():
    before = random.getstate(), np.random.get_state()[1].tolist()
    drifted(None)

    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
