"""Checks of merged runs: those of one run that was asked for everything, or "not run"."""

import json
import sqlite3

import pytest

from robustkit import Classifier
from robustkit.evaluation.merging import merge
from tests.networks import Changed
from tests.small import cnn, data, evaluated, evidence, linear, only

RAN = ("normalisation", "gradient_direction", "restarts", "eight_bits", "transfer_wins", "zero_gradients")
MADE = {"linear": linear, "cnn": cnn, "steps": lambda: Changed(linear(), before=lambda x: (x * 16).round() / 16)}


@pytest.fixture(autouse=True)
def cheap_rules(monkeypatch):
    (restarts,) = only("restarts")
    monkeypatch.setattr("robustkit.checks.register.RULES", only(*RAN))
    monkeypatch.setitem(restarts.probes[0].specification, "full", "pgd:steps=3,restarts=2")


def run(folder, models=("linear", "cnn"), **changes):
    asked = {"dataset": data(8), "attacks": ["fgsm", "pgd:steps=5"], "eps": "0.05", "checks": "full", **changes}
    return evaluated([Classifier(MADE[name](), name=name) for name in models], folder, **asked)


def merged(place, *parts):
    for number, part in enumerate(parts):
        run(place / str(number), **part)
    return merge([place / str(number) for number in range(len(parts))], place / "merged")


def test_passes_on_each_model_are_those_of_a_run_of_both(tmp_path):
    joined = merged(tmp_path, {"models": ["linear"]}, {"models": ["cnn"]})
    whole = run(tmp_path / "whole")

    # No part had both models, so no example of one was tried on the other.
    assert [check for check in joined.run.checks if check.name != "transfer_wins"] == [
        check for check in whole.checks if check.name != "transfer_wins"
    ]
    assert [note for note in joined.notes if "transfer_wins" in note] == list(joined.notes)
    assert run(tmp_path / "merged").checks == whole.checks


def test_other_survivors_are_searched_when_the_merged_run_is_evaluated(tmp_path):
    joined = merged(tmp_path, {"attacks": "fgsm"}, {"attacks": "pgd:steps=5"})
    whole = run(tmp_path / "whole")

    assert {check.status for check in joined.run.checks if check.name == "gradient_direction"} == {"ok"}
    assert run(tmp_path / "merged").checks == whole.checks


def test_pictures_that_were_copied_from_a_smaller_radius_contradict_nothing(tmp_path):
    both, larger = {"eps": ["0.05", "0.1"]}, {"eps": "0.1"}
    merged(tmp_path, both, larger)

    assert run(tmp_path / "merged", **both).checks == run(tmp_path / "whole", **both).checks


def test_gradients_that_are_zero_are_not_forgotten(tmp_path):
    hidden = {"models": ["steps"], "checks": "quick"}
    joined = merged(tmp_path, {**hidden, "attacks": "pgd:steps=5"}, {**hidden, "attacks": "noise:queries=2"})
    (check,) = [check for check in joined.run.checks if check.name == "zero_gradients"]

    assert check.status == "failed"


def test_passes_of_several_versions_are_not_mixed(tmp_path):
    run(tmp_path / "a", models=["linear"])
    run(tmp_path / "b", models=["cnn"])
    with sqlite3.connect(tmp_path / "b" / "run.sqlite") as store:
        store.execute("UPDATE run SET value = ? WHERE key = 'robustkit'", (json.dumps("0.0.1"),))
    store.close()
    joined = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")

    assert evidence(tmp_path / "merged")["checked"] == []
    assert any("several versions" in note for note in joined.notes)
