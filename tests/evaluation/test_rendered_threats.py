"""Threats that are no norm, through everything that takes a norm."""

import numpy as np
import pandas as pd
import pytest
import torch
from robustkit.attacks import PGD, Grid
from robustkit.defenses import Recipe, finetune

from robustkit import Classifier, attack, diagnose, evaluate
from robustkit.data import given_dataset
from robustkit.errors import UserError
from robustkit.statistics.randomized_smoothing import radius_factor
from tests.problems import problem
from tests.small import data, evaluated, linear


def test_an_evaluation_reports_them_as_it_reports_norms(tmp_path):
    run = evaluate(
        linear(), dataset=data(12), attacks=["grid:angles=3,shifts=3", "pgd:steps=3"], norm=["spatial", "Linf"][:1],
        eps=["5", "10"], out=tmp_path / "run",
    )  # fmt: skip
    rows = pd.read_csv(tmp_path / "run" / "results.csv")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")

    assert set(rows["norm"].dropna()) >= {"spatial"}
    assert len(run.results) == len(rows)
    assert "rotated by up to 10 degrees and shifted" in page
    assert "rotations, shifts, patches" not in page


def test_two_threats_make_one_table():
    run = evaluated(
        linear(), None, dataset=data(6), attacks=["pgd:steps=2"], norm=["Linf", "flow"], eps=["Linf:0.1", "flow:0.3"]
    )

    assert list(dict.fromkeys(run.results["norm"].dropna()))[-3:] == ["Linf", "flow", "union"]


@pytest.mark.parametrize("attacks", [["default"], ["grid", "autoattack"]])
def test_an_ensemble_is_refused_in_a_line_that_names_what_to_take(attacks):
    with pytest.raises(UserError, match=r"has no rotation form; name attacks .*: grid, pgd or noise"):
        evaluated(linear(), None, dataset=data(4), attacks=attacks, norm="rotation", eps="10")


def test_an_attack_without_that_form_names_those_that_have_it():
    with pytest.raises(UserError, match="no flow form; it has Linf, L2, L1; for flow take stadv, pgd or noise"):
        evaluated(linear(), None, dataset=data(4), attacks="square", norm="flow", eps="1")


def test_a_smoothed_model_is_not_attacked_by_them():
    with pytest.raises(UserError, match="leave rotation out"):
        evaluated(linear(), None, dataset=data(4), attacks="pgd", norm="rotation", eps="10", smooth=0.2)


def test_nothing_is_certified_in_them():
    with pytest.raises(UserError, match="certifies nothing in rotation"):
        radius_factor("rotation", 64)


def test_diagnose_refuses_them():
    with pytest.raises(UserError, match="diagnose needs a norm"):
        diagnose(linear(), *data(8), eps=10, norm="rotation")


def test_training_refuses_them():
    train = given_dataset(data(20))
    with pytest.raises(UserError, match="Training takes a norm, and rotation is not one"):
        finetune(linear(), train, train, eps=10, norm="rotation", recipe=Recipe(attack="pgd:steps=2", epochs=1))


def test_results_hold_the_parameters_and_zeros_for_images_that_were_not_attacked():
    made = problem("cnn", 1, 8, 8, count=6)
    y = made.y.clone()
    y[2] = (y[2] + 1) % 4
    result = attack(made.model, made.x, y, Grid(4.0, "spatial", angles=3, shifts=3))

    assert result.parameters.shape == (6, 3)
    assert result.parameters[2].tolist() == [0.0, 0.0, 0.0]
    assert result.parameters[result.success].abs().amax() == 4


def test_in_a_norm_the_parameters_are_the_point():
    made = problem("linear", 1, 4, 4, count=4)
    result = attack(made.model, made.x, made.y, PGD(0.1, steps=2))

    assert torch.equal(result.parameters, result.x_adv)


def test_images_in_bounds_of_their_own_are_rendered_in_them():
    made = problem("cnn", 1, 8, 8, count=6)
    wide = Classifier(torch.nn.Sequential(Shift(), made.model), bounds=(-1, 1))
    one = attack(made.model, made.x, made.y, Grid(4.0, "spatial", angles=3, shifts=3))
    other = attack(wide, (made.x * 2 - 1).double(), made.y, Grid(4.0, "spatial", angles=3, shifts=3))

    assert torch.equal(one.success, other.success)
    assert torch.equal(one.parameters, other.parameters)
    np.testing.assert_allclose(other.x_adv, one.x_adv * 2 - 1, atol=1e-6)


class Shift(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + 1) / 2
