"""Runs that are merged have the bytes of one run that was asked for everything, or are refused."""

import json
import os
import shutil
import signal
import sqlite3

import pytest

from robustkit import Classifier, UserError, load_run
from robustkit.evaluation import merging
from robustkit.evaluation.merging import merge
from robustkit.evidence.consistency import contradictions_in
from robustkit.evidence.kept import check_kept
from robustkit.evidence.opening import errors_explained
from robustkit.host.lock import locked
from tests.small import cnn, csv, data, evaluated, evidence, linear

ATTACKS = ["brief", "noise:queries=3"]


def run(folder, models=("linear", "cnn"), **changes):
    made = {"linear": linear, "cnn": cnn}
    asked = {
        "dataset": data(6),
        "attacks": ATTACKS,
        "eps": ["0.05", "0.1"],
        "keep_adversarial": True,
        "checks": "none",
        **changes,
    }
    return evaluated([Classifier(made[name](), name=name) for name in models], folder, **asked)


pytestmark = pytest.mark.usefixtures("brief")


@pytest.fixture(scope="module")
def whole(brief, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(folder)
    return folder


PARTS = {
    "models": [{"models": ["linear"]}, {"models": ["cnn"]}],
    "attacks": [{"attacks": "brief"}, {"attacks": "noise:queries=3"}],
    "radii": [{"eps": "0.1"}, {"eps": "0.05"}],
    "some of everything": [{"models": ["linear"]}, {"attacks": "brief"}, {"models": ["cnn"], "eps": "0.1"},
                           {"models": ["cnn"], "eps": "0.05", "attacks": "noise:queries=3"}],
}  # fmt: skip


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_parts_give_the_tables_of_the_whole(parts, whole, tmp_path):
    for number, part in enumerate(parts):
        run(tmp_path / str(number), **part)
    merged = merge([tmp_path / str(number) for number in range(len(parts))], tmp_path / "merged")

    assert not merged.missing
    assert csv(merged.run, tmp_path) == csv(load_run(whole), whole)
    assert not list(contradictions_in(merged.run))
    assert not check_kept(merged.run, {}).contradictions


def halved(whole, folder, keep):
    """A copy of a run with every second image, as one of two processes that share a plan would have it."""
    shutil.copytree(whole, folder)
    with sqlite3.connect(folder / "run.sqlite") as store:
        for table in ("clean", "attacked", "near", "queried", "picture", "witness", "original"):
            store.execute(f"DELETE FROM {table} WHERE sample % 2 != ?", (keep,))
        store.execute("UPDATE run SET value = 'null' WHERE key = 'finished'")
    store.close()
    return folder


def test_a_merge_on_a_full_disk_is_not_said_to_continue(whole, tmp_path, monkeypatch):
    def full(source, target, identity):
        with errors_explained(target.folder):
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(merging, "_copy_answers", full)

    with pytest.raises(UserError, match="a merge starts again"):
        merge([whole, whole], tmp_path / "merged")
    assert not list(tmp_path.iterdir())


def test_disjoint_images_of_one_plan_give_the_evidence_of_the_whole(whole, tmp_path):
    halves = [halved(whole, tmp_path / str(keep), keep) for keep in (0, 1)]
    merged = merge(halves, tmp_path / "merged")
    before, after = evidence(whole), evidence(tmp_path / "merged")

    assert not merged.missing
    assert merged.run.manifest["finished"]
    assert csv(merged.run, tmp_path) == csv(load_run(whole), whole)
    assert all(before[name] == after[name] for name in ("clean", "near", "queried", "witness", "original", "answers"))


def test_what_is_missing_is_said_and_an_evaluation_adds_it(whole, tmp_path):
    run(tmp_path / "a", models=["linear"], attacks="brief")
    run(tmp_path / "b", models=["cnn"], attacks="noise:queries=3")
    merged = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "merged")

    assert merged.run.manifest["finished"] is None
    assert any("cnn, Linf 0.05, brief/first" in text for text in merged.missing)
    assert csv(run(tmp_path / "merged"), tmp_path) == csv(load_run(whole), whole)


def test_only_what_all_runs_declared_beforehand_was_declared(tmp_path):
    for name, declared in (("a", ["clean>=0.5", "Linf@0.1>=0.1"]), ("b", ["Linf@0.1>=0.1"])):
        run(tmp_path / name, models=["linear"], attacks="fgsm", eps="0.1", declared=declared)

    manifest = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "merged").run.manifest

    assert manifest["declared"] == ["Linf@0.1>=0.1"]
    assert [
        text for text in manifest["warnings"] if "clean>=0.5 was declared for some of the merged runs alone" in text
    ]


def test_a_run_merged_with_itself_is_itself(whole, tmp_path):
    merged = merge([whole, whole], tmp_path / "merged")

    assert csv(merged.run, tmp_path) == csv(load_run(whole), whole)


REFUSED = {
    "another seed": ({"seed": 1}, "the seed"),
    "other data": ({"dataset": (data(6)[0].flip(0), data(6)[1])}, "data"),
    "fewer images": ({"samples": 4}, "data|number of images"),
    "another model of one name": ({"models": ["cnn"]}, "The model linear differs between"),
    "an attack with other settings": ({"attacks": ["fgsm:restarts=2"]}, "The attack fgsm"),
}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    run(folder, models=["linear"], attacks="fgsm")
    return folder


@pytest.mark.parametrize(("changes", "words"), REFUSED.values(), ids=REFUSED)
def test_runs_that_do_not_belong_together_are_refused(changes, words, first, tmp_path):
    run(tmp_path / "b", **{"models": ["linear"], "attacks": "fgsm", **changes})
    with sqlite3.connect(tmp_path / "b" / "run.sqlite") as store:
        (text,) = store.execute("SELECT value FROM run WHERE key = 'identity'").fetchone()
        identity = json.loads(text)
        identity["models"][0]["name"] = "linear"
        identity["attacks"][0]["name"] = "fgsm"
        store.execute("UPDATE run SET value = ? WHERE key = 'identity'", (json.dumps(identity),))
    store.close()
    with pytest.raises(UserError, match=words):
        merge([first, tmp_path / "b"], tmp_path / "merged")

    assert not (tmp_path / "merged").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE attacked SET l2 = l2 * 1.01",
        "UPDATE attacked SET success = 1 - success, forwards = forwards + 1",
        "UPDATE clean SET pred = (pred + 1) % 10",
        "UPDATE witness SET x_adv = (SELECT x FROM original WHERE original.sample = witness.sample)",
        "UPDATE answers SET logits = zeroblob(length(logits))",
    ],
)
def test_rows_that_contradict_each_other_are_refused(statement, first, tmp_path):
    shutil.copytree(first, tmp_path / "b")
    with sqlite3.connect(tmp_path / "b" / "run.sqlite") as store:
        store.execute(statement)
    store.close()
    with pytest.raises(UserError, match=r"contradicts|another model"):
        merge([first, tmp_path / "b"], tmp_path / "merged")


def test_a_damaged_run_is_named_and_not_the_hidden_folder_of_the_merge(first, tmp_path):
    run(tmp_path / "b", models=["cnn"], attacks="fgsm")
    with sqlite3.connect(tmp_path / "b" / "run.sqlite") as store:
        store.execute("DELETE FROM attacked WHERE sample = (SELECT min(sample) FROM picture)")
    store.close()
    with pytest.raises(UserError, match="was damaged or changed") as refused:
        merge([first, tmp_path / "b"], tmp_path / "merged")

    assert str(refused.value).startswith(str(tmp_path / "b" / "run.sqlite"))


def test_a_folder_that_exists_is_left_alone(first, tmp_path):
    with pytest.raises(UserError, match="another --out"):
        merge([first, first], tmp_path)
    with pytest.raises(UserError, match="two runs"):
        merge([first], tmp_path / "merged")


def test_of_two_merges_into_one_folder_the_second_says_what_to_do(first, tmp_path, monkeypatch):
    """It named its hidden folder, and advised to check the disk."""
    copy_answers = merging._copy_answers

    def overtaken(*given):
        copy_answers(*given)
        monkeypatch.undo()
        if not (tmp_path / "merged").exists():
            merge([first, first], tmp_path / "merged")

    monkeypatch.setattr(merging, "_copy_answers", overtaken)

    with pytest.raises(UserError, match=r"merged was made by another process .* another --out"):
        merge([first, first], tmp_path / "merged")
    assert list(tmp_path.iterdir()) == [tmp_path / "merged"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and locks")
def test_what_a_killed_merge_left_is_removed_and_nothing_else(first, tmp_path, monkeypatch):
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(merging, "_copy_answers", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        try:
            merge([first, first], tmp_path / "merged")
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    at_work, of_somebody, empty = (
        left.with_name(f"{left.name[:-8]}{name}") for name in ("working1", "somebody", "empty000")
    )
    for folder in (at_work, of_somebody):
        shutil.copytree(left, folder)
    (of_somebody / "notes.txt").write_text("mine")
    empty.mkdir()

    with locked(at_work):
        merge([first, first], tmp_path / "merged")

    assert set(tmp_path.iterdir()) == {tmp_path / "merged", at_work, of_somebody, empty}
