"""Checks of real runs: levels, resuming, what a failed check changes."""

import os

import pytest
import torch
from torch import nn

from robustkit import Classifier, UserError, evaluate, gate, load_run
from robustkit.checks.binarization import linear_head
from robustkit.evidence.run import Run
from tests.evaluation.crash_checks import moments
from tests.networks import Changed
from tests.small import cnn, csv, data, evaluated, evidence, linear, only


def status(run: Run, name: str) -> set[str]:
    return {check.status for check in run.checks if check.name == name}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_checks_that_are_killed_go_on_to_the_same_files_in_any_batch_size(tmp_path, monkeypatch):
    rules = only("gradient_direction", "eight_bits", "restarts", "binarization")
    monkeypatch.setattr("robustkit.checks.register.RULES", rules)
    monkeypatch.setattr("robustkit.checks.binarization._COUNT", 2)
    (restarts,) = only("restarts")
    monkeypatch.setitem(restarts.probes[0].specification, "full", "pgd:steps=3,restarts=2")
    tried = list(moments(tmp_path, "full", 4))

    assert [moment.rows for moment in tried] == [moment.after for moment in tried]
    assert all(moment.killed and moment.same_evidence and moment.same_files for moment in tried)


@pytest.mark.parametrize(("attack", "looks"), [("noise:queries=3", False), ("default", False), ("fgsm", True)])
def test_quick_checks_look_only_where_no_attack_measures_gradients_and_change_no_table(attack, looks, tmp_path):
    request = {"dataset": data(10), "attacks": attack, "eps": "0.02"}
    quick = evaluated(linear(), tmp_path / "quick", **request)
    none = evaluated(linear(), tmp_path / "none", **request, checks="none")

    assert csv(quick, tmp_path / "quick") == csv(none, tmp_path / "none")
    assert bool(evidence(tmp_path / "quick")["checked"]) == looks
    assert evidence(tmp_path / "none")["checked"] == []
    assert quick.checks
    assert not none.checks


def test_the_level_of_a_finished_run_is_raised_and_never_lowered(tmp_path, monkeypatch):
    monkeypatch.setattr("robustkit.checks.register.RULES", only("unbounded", "gradient_direction"))
    request = {"dataset": data(6), "attacks": "pgd:steps=10", "eps": "0.15"}
    evaluated(linear(), tmp_path, **request)
    standard = evaluated(linear(), tmp_path, **request, checks="standard")
    again = evaluated(linear(), tmp_path, **request, checks="quick")

    assert again.checks == standard.checks == load_run(tmp_path).checks
    assert status(standard, "unbounded") == {"ok"}


def test_an_unknown_level_is_refused():
    with pytest.raises(UserError, match="standard"):
        evaluate(linear(), dataset=data(2), attacks="fgsm", eps="0.1", checks="standart")


def test_a_failed_check_makes_the_gate_fail():
    model = nn.Sequential(linear(), nn.Softmax(1))
    run = evaluated(model, None, dataset=data(10), attacks="fgsm", eps="0.1")

    assert set(run.results["note"]) == {"outputs are not logits"}
    assert not gate(run, fail_under="clean>=0.1").passed
    assert gate(run, fail_under="clean>=0.1", allow_unreliable=True).passed


def test_a_model_that_no_gradient_reaches_is_found_by_the_standard_checks(monkeypatch):
    monkeypatch.setattr("robustkit.checks.register.RULES", only("gradient_direction", "longer_search"))
    model = Changed(linear(), before=lambda x: x.detach())
    run = evaluated(model, None, dataset=data(6), attacks="noise:queries=3", eps="0.1", checks="standard")

    assert status(run, "gradient_direction") == {"failed"}
    assert status(run, "longer_search") == {"not_applicable"}


def test_missing_preprocessing_is_found(monkeypatch):
    monkeypatch.setattr("robustkit.checks.register.RULES", only("normalisation"))
    # Fitted to pixels from 0 to 1, and given them inverted.
    model = Changed(linear(), before=lambda x: 1 - x)
    run = evaluated(model, None, dataset=data(40), attacks="noise:queries=2", eps="0.01", checks="standard")
    (check,) = [check for check in run.checks if check.name == "normalisation"]

    assert check.status == "failed"
    assert "inverted" in check.finding


def test_the_linear_head_is_the_layer_whose_output_is_the_models():
    x, _ = data(2)

    assert linear_head(cnn(), x).name == "1"
    assert linear_head(nn.Sequential(linear(), nn.Softmax(1)), x) is None


@pytest.mark.parametrize(("attack", "expected"), [("pgd:steps=20", "ok"), ("noise:queries=2", "failed")])
def test_binarization_tells_an_attack_that_works_from_one_that_does_not(attack, expected, monkeypatch):
    monkeypatch.setattr("robustkit.checks.register.RULES", only("binarization"))
    monkeypatch.setattr("robustkit.checks.binarization._COUNT", 4)
    run = evaluated(cnn(), None, dataset=data(10), attacks=attack, eps="0.1", checks="full")

    assert status(run, "binarization") == {expected}


def test_binarization_leaves_out_a_model_that_cannot_be_copied(monkeypatch):
    # A forward that was put into an object stays that of the original: ten logits in place of two, and a traceback.
    monkeypatch.setattr("robustkit.checks.register.RULES", only("binarization"))
    monkeypatch.setattr("robustkit.checks.binarization._COUNT", 4)
    replaced = cnn()
    own = replaced.forward
    replaced.forward = lambda x: 1 * own(x)
    run = evaluated(replaced, None, dataset=data(10), attacks="pgd:steps=20", eps="0.1", checks="full")

    assert status(run, "binarization") == {"not_applicable"}


def test_another_models_adversarial_examples_are_tried(monkeypatch):
    monkeypatch.setattr("robustkit.checks.register.RULES", only("transfer_wins"))
    hidden = Classifier(Changed(linear(), before=lambda x: torch.round(x * 64) / 64), name="hidden")
    run = evaluated(
        [Classifier(linear(), name="open"), hidden], None, dataset=data(24), attacks="pgd:steps=10", eps="0.1",
        checks="standard",
    )  # fmt: skip
    (check,) = [check for check in run.checks if check.model == "hidden"]

    assert check.status == "failed"
    assert len(check.images) == check.numbers["broken"]
