"""Rules about gradients on models whose fault is known, and on models without one."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from robustkit.checks.check import Check
from tests.networks import Changed, Falsified, Noisy
from tests.small import cnn, data, evaluated, evidence, linear, only


def checks_of(
    monkeypatch, names: Sequence[str], model: nn.Module, attack: str = "noise:queries=2", **request: Any
) -> list[Check]:
    monkeypatch.setattr("robustkit.checks.register.RULES", only(*names))
    settings = {"dataset": data(16), "attacks": attack, "eps": "0.1", "checks": "full", **request}
    return list(evaluated(model, None, **settings).checks)


def checked(monkeypatch, name: str, model: nn.Module, *attack: str, **request: Any) -> Check:
    (check,) = checks_of(monkeypatch, [name], model, *attack, **request)
    return check


HONEST = {"linear": linear, "cnn": cnn, "tanh": lambda: Changed(linear(), before=torch.tanh)}


@pytest.mark.parametrize("make", HONEST.values(), ids=HONEST)
@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_honest_models_set_nothing_off(norm, make, monkeypatch):
    radius = {"Linf": "0.1", "L2": "0.5", "L1": "2"}[norm]
    found = checks_of(
        monkeypatch, ("finite_difference", "unseen_values", "unstable_loss"), make(), norm=norm, eps=radius
    )

    assert len(found) == 3
    assert all((check.status, check.images) == ("ok", ()) for check in found)


def test_a_backward_pass_that_is_not_the_forwards_is_found(monkeypatch):
    wrong = Changed(linear(), before=lambda x: Falsified.apply(x, 3, 1))

    assert checked(monkeypatch, "finite_difference", wrong).status == "failed"
    assert checked(monkeypatch, "unstable_loss", wrong).status == "ok"


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_values_that_a_threshold_hides_from_the_gradient_are_found(norm, monkeypatch):
    # The digits' background is 0; what moves it above the threshold, no gradient shows.
    hidden = Changed(linear(), before=lambda x: x * (x > 0.05))
    radius = {"Linf": "0.1", "L2": "1"}[norm]

    assert checked(monkeypatch, "unseen_values", hidden, norm=norm, eps=radius).status == "failed"
    assert checked(monkeypatch, "finite_difference", hidden, norm=norm, eps=radius).status == "ok"


def test_values_without_a_gradient_that_do_not_matter_are_no_fault(monkeypatch):
    cropped = Changed(linear(), before=lambda x: x * torch.nn.functional.pad(torch.ones(6, 6), (1, 1, 1, 1)))

    assert checked(monkeypatch, "unseen_values", cropped).status == "ok"


def test_a_loss_that_is_shattered_is_found(monkeypatch):
    # Its derivative is right, and leads no farther than a thousandth of a grey level.
    shattered = Changed(linear(), before=lambda x: x + 0.1 * torch.sin(1e4 * x))

    assert checked(monkeypatch, "unstable_loss", shattered).status == "failed"


@pytest.mark.parametrize(("height", "speed"), [(0.005, 1000), (0.02, 300), (0.02, 1000)])
def test_a_wave_that_turns_within_a_tenth_of_the_radius_is_found(height, speed, monkeypatch):
    # Its derivative is right and the loss nowhere jumps, but the gradient leads nowhere.
    waves = Changed(linear(), before=lambda x: x + height * torch.sin(speed * x))

    assert checked(monkeypatch, "finite_difference", waves).status == "failed"


def test_a_gradient_that_is_no_number_is_found_though_no_attack_follows_it(monkeypatch):
    # The root's derivative is infinite at 0, and the digits' background is 0.
    root = Changed(linear(), before=lambda x: torch.sqrt(x) ** 2)

    assert checked(monkeypatch, "finite_gradients", root).status == "failed"
    assert checked(monkeypatch, "finite_gradients", linear()).status == "ok"


@pytest.mark.parametrize(("loss", "status"), [("log-odds", "ok"), ("ce", "ok"), ("dlr", "ok"), ("OWN", "warning")])
def test_a_loss_that_falls_with_the_margin_is_found(loss, status, monkeypatch, tmp_path):
    file = tmp_path / "own.py"
    file.write_text("def flat(logits, y):\n    return logits.std(1) + 0 * y\n")
    attack = f"pgd:steps=3,loss={loss.replace('OWN', f'{file}:flat')}"

    assert checked(monkeypatch, "consistent_loss", linear(), attack).status == status


def test_with_fixed_randomness_a_noisy_model_is_broken_and_a_masked_one_is_not(monkeypatch):
    monkeypatch.setattr("robustkit.checks.fixed_randomness._ATTACK", "pgd:steps=30,random_start=false")
    request = {"dataset": data(3), "eot": 2}
    masked = Noisy(Changed(linear(), before=lambda x: torch.round(4 * x) / 4))

    assert checked(monkeypatch, "fixed_randomness", Noisy(linear()), **request).status == "ok"
    assert checked(monkeypatch, "fixed_randomness", masked, **request).status == "failed"
    assert checked(monkeypatch, "fixed_randomness", linear(), "fgsm").status == "not_applicable"


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_a_row_does_not_depend_on_the_images_beside_it(norm, tmp_path, monkeypatch):
    rules = ("finite_gradients", "gradient_direction", "finite_difference", "unstable_loss", "consistent_loss")
    monkeypatch.setattr("robustkit.checks.register.RULES", only(*rules))
    settings = {"dataset": data(9), "attacks": "pgd:steps=3", "norm": norm, "eps": "0.3", "checks": "full"}
    evaluated(cnn(), tmp_path, **settings)
    rows = evidence(tmp_path)["checked"]
    with sqlite3.connect(tmp_path / "run.sqlite") as store:
        store.execute("DELETE FROM checked WHERE sample = ?", (rows[0][4],))
    store.close()

    assert len(evidence(tmp_path)["checked"]) < len(rows)
    evaluated(cnn(), tmp_path, **settings)
    assert evidence(tmp_path)["checked"] == rows
