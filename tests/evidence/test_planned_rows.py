"""Rows beside the plan, and rows that are gone, are noticed; those of an honest run never are."""

import json
import sqlite3

import pytest

from robustkit import load_run
from robustkit.evidence.planned_rows import plan_contradictions
from tests.evaluation.test_autoattack import shorter
from tests.evidence.test_consistency import RUNS
from tests.small import Recorder, data, evaluated, linear


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_no_honest_run_is_accused(settings, tmp_path, monkeypatch):
    shorter(monkeypatch)
    settings = {"models": linear(), "dataset": data(12), **settings}
    evaluated(settings.pop("models"), tmp_path, **settings)

    assert not list(plan_contradictions(load_run(tmp_path)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("run")
    evaluated(linear(), made, dataset=data(12), attacks=["default", "fgsm"], eps=["0.05", "0.1"])
    return made


# One row becomes that of something else, or is gone. Without it an attack looks weaker or stronger than it was.
_ONE = "WHERE attack = 'fgsm' AND eps_text = '0.1' AND sample = (SELECT max(sample) FROM attacked WHERE success = 0)"
EDITS = [f"UPDATE attacked SET {column} = 'x' {_ONE}" for column in ("model", "norm", "eps_text", "attack")]


@pytest.mark.parametrize("edit", [*EDITS, f"DELETE FROM attacked {_ONE}", "DELETE FROM attacked WHERE attack = 'fgsm'"])
def test_a_row_that_was_moved_or_deleted_is_noticed(edit, folder, tmp_path):
    (tmp_path / "run.sqlite").write_bytes((folder / "run.sqlite").read_bytes())
    with sqlite3.connect(tmp_path / "run.sqlite") as store:
        store.execute("DELETE FROM picture")
        assert store.execute(edit).rowcount > 0
    store.close()

    assert list(plan_contradictions(load_run(tmp_path)))


FOREIGN = {
    "clean": "INSERT INTO clean SELECT 'x', sample, label, pred, ranking FROM clean LIMIT 1",
    "near": "UPDATE near SET model = 'x' WHERE sample = (SELECT max(sample) FROM near)",
    "certified": "INSERT INTO certified SELECT model, sample, 5, 10, 0.99, 1, 1, 1 FROM clean LIMIT 1",
}


@pytest.mark.parametrize("table", FOREIGN)
def test_a_row_about_a_model_that_the_run_lacks_or_that_nothing_smooths_is_noticed(table, folder, tmp_path):
    (tmp_path / "run.sqlite").write_bytes((folder / "run.sqlite").read_bytes())
    with sqlite3.connect(tmp_path / "run.sqlite") as store:
        assert store.execute(FOREIGN[table]).rowcount > 0
    store.close()

    (found,) = plan_contradictions(load_run(tmp_path))
    assert f"table '{table}'" in found.what


def test_an_unfinished_run_may_lack_verdicts(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        evaluated(linear(), tmp_path, dataset=data(12), attacks="fgsm", eps="0.1", watch=Recorder(14))

    assert not list(plan_contradictions(load_run(tmp_path)))


def test_more_images_than_the_run_has_are_noticed(folder, tmp_path):
    (tmp_path / "run.sqlite").write_bytes((folder / "run.sqlite").read_bytes())
    with sqlite3.connect(tmp_path / "run.sqlite") as store:
        store.execute("DELETE FROM picture")
        (text,) = store.execute("SELECT value FROM run WHERE key = 'identity'").fetchone()
        store.execute("UPDATE run SET value = ? WHERE key = 'identity'", [json.dumps({**json.loads(text), "n": 11})])
    store.close()

    assert "there are 12 images, and the run has 11" in {each.what for each in plan_contradictions(load_run(tmp_path))}
