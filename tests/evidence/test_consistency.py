"""Evidence that was edited contradicts itself, and evidence that was not never does."""

import sqlite3
from pathlib import Path

import pytest

from robustkit import Smoothing, evaluate, load_run
from robustkit.evidence.consistency import contradictions_in
from tests.evaluation.test_autoattack import shorter
from tests.networks import Constant, Noisy
from tests.small import cnn, data, linear

RUNS = {
    "a cascade and several radii": {"attacks": ["default", "fgsm"], "eps": ["0.05", "0.1"]},
    "all norms": {
        "attacks": "noise:queries=5",
        "eps": ["Linf:0.1", "L2:0.8", "L1:5", "L0:6"],
        "norm": ["Linf", "L2", "L1", "L0"],
    },
    "the nearest error": {"attacks": "fab:steps=3", "eps": "minimum"},
    "an audit": {"attacks": "fgsm", "eps": "0.02", "audit": 2},
    "a guess": {"models": Constant(3), "attacks": "fgsm", "eps": "0.1"},
    "noise": {"models": Noisy(linear(), spread=0.05), "attacks": "noise:queries=2", "eps": "0.05"},
    "float64": {"models": cnn().double(), "attacks": "pgd:steps=3", "eps": "0.1"},
}


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_no_run_contradicts_itself(settings, monkeypatch):
    shorter(monkeypatch)
    settings = {"models": linear(), "dataset": data(12), **settings}

    assert list(contradictions_in(evaluate(settings.pop("models"), **settings))) == []


def test_a_smoothed_run_does_not_contradict_itself():
    smooth = Smoothing(sigma=0.1, n=50, n0=10)
    run = evaluate(linear(), dataset=data(6), attacks="noise:queries=2", norm="L2", eps="0.1", smooth=smooth)

    assert list(contradictions_in(run)) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("run")
    evaluate(linear(), dataset=data(20), attacks=["fgsm", "noise:queries=2"], eps="0.1", out=made)
    return made


EDITS = {
    "a broken image made robust": "UPDATE attacked SET success = 0 WHERE success = 1",
    "a robust image made broken": "UPDATE attacked SET success = 1 WHERE success = 0",
    "a prediction": "UPDATE attacked SET adv_pred = (adv_pred + 1) % 10 WHERE success = 0",
    "a distance": "UPDATE attacked SET linf = 0.11",
    "a distance below another that is never larger": "UPDATE attacked SET l2 = linf / 2 WHERE success = 1",
    "a distance of zero beside others": "UPDATE attacked SET linf = 0 WHERE success = 1",
    "no distance in one norm": "UPDATE attacked SET l1 = 0 WHERE success = 1",
    "a negative distance": "UPDATE attacked SET l0 = -1 WHERE success = 1",
    "a broken image of no class": "UPDATE attacked SET adv_pred = -1 WHERE success = 1",
    "a label": "UPDATE clean SET label = (label + 1) % 10",
    "a clean prediction": "UPDATE clean SET pred = (pred + 1) % 10",
    "a radius": "UPDATE run SET value = replace(value, '\"0.1\"', '\"0.05\"') WHERE key = 'identity'",
    "a picture": "UPDATE picture SET x_adv = x",
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_of_the_evidence_is_noticed(edit, folder, tmp_path):
    (tmp_path / "run.sqlite").write_bytes((folder / "run.sqlite").read_bytes())
    with sqlite3.connect(tmp_path / "run.sqlite") as store:
        assert store.execute(edit).rowcount > 0
    store.close()
    if "identity" in edit:  # the rows keep the old radius, so there are none of the new one
        with sqlite3.connect(tmp_path / "run.sqlite") as store:
            store.execute("UPDATE attacked SET eps_text = '0.05'")
            store.execute("UPDATE picture SET eps_text = '0.05'")
        store.close()

    assert list(contradictions_in(load_run(tmp_path)))
