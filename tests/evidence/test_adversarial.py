"""Adversarial examples that a run keeps: the points that were judged, to the last bit, whatever happens in between."""

import sqlite3
from collections import Counter

import pytest
import torch

from robustkit import UserError, load_run
from robustkit.evaluation import attacking
from robustkit.evidence.kept import check_kept
from robustkit.evidence.store import Store
from tests.small import Recorder, cnn, data, evaluated, evidence, linear, short_default

ASKED = {"dataset": data(12), "attacks": ["fgsm", "brief"], "eps": ["0.05", "0.1"], "keep_adversarial": True}


@pytest.fixture(autouse=True, scope="module")
def _brief():
    with short_default():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("run")
    evaluated(linear(), made, **ASKED)
    return made


def kept(folder):
    tables = evidence(folder)
    return tables["witness"], tables["original"]


@pytest.mark.parametrize("eps", ["0.05", "0.1"])
def test_every_broken_image_has_an_example_that_the_model_gets_wrong(eps, folder):
    run = load_run(folder)
    found = run.adversarial(eps=eps)
    rows = run.samples[(run.samples.eps_text == eps) & (run.samples.verdict == "broken")]
    x, y = data(12)

    assert set(found.samples.tolist()) == set(rows["sample"])
    assert found.x.equal(x[found.samples])
    assert found.y.equal(y[found.samples])
    assert linear()(found.x_adv).argmax(1).equal(found.predictions)
    assert not found.predictions.eq(found.y).any()
    assert ((found.x_adv.double() - found.x.double()).abs() <= float(eps)).all()
    assert found.x_adv.min() >= 0
    assert found.x_adv.max() <= 1


def test_one_attack_has_its_own_examples(folder):
    run = load_run(folder)
    of_fgsm, of_ensemble = run.adversarial(attack="fgsm", eps="0.1"), run.adversarial(attack="brief", eps="0.1")

    assert set(of_fgsm.attacks) == {"fgsm"}
    assert all(name.startswith("brief/") for name in of_ensemble.attacks)
    assert len(of_ensemble) == (run.samples.query("attack == 'brief' and eps_text == '0.1'").verdict == "broken").sum()


def test_a_float64_model_keeps_float64_points(tmp_path):
    evaluated(cnn().double(), tmp_path, **ASKED)
    run = load_run(tmp_path)
    found = run.adversarial(eps="0.1")

    assert found.x_adv.dtype == torch.float64
    assert cnn().double()(found.x_adv).argmax(1).equal(found.predictions)
    assert check_kept(run, {}).contradictions == []


@pytest.mark.parametrize("batch_size", [5])
def test_the_same_examples_in_any_batch_size(batch_size, folder, tmp_path):
    evaluated(linear(), tmp_path, batch_size=batch_size, **ASKED)

    assert kept(tmp_path) == kept(folder)


def test_the_same_examples_after_an_interruption(folder, tmp_path):
    # The second time without the option: a folder that keeps examples goes on doing so.
    with pytest.raises(KeyboardInterrupt):
        evaluated(linear(), tmp_path, watch=Recorder(40), **ASKED)
    evaluated(linear(), tmp_path, **{**ASKED, "keep_adversarial": False})

    assert kept(tmp_path) == kept(folder)


def test_torchattacks_every_row_is_written_once(monkeypatch, tmp_path):
    # Its `save` writes all earlier batches again with each batch.
    written, write = [], Store.write
    monkeypatch.setattr(Store, "write", lambda store, rows: written.extend(rows) or write(store, rows))
    monkeypatch.setattr(attacking, "COMMIT_SECONDS", 0.0)  # commits after every batch
    evaluated(linear(), tmp_path, dataset=data(12), attacks="fgsm", eps="0.1", batch_size=2, keep_adversarial=True)
    kinds = Counter(type(row).__name__ for row in written)

    assert kinds["AttackRecord"] == kinds["CleanRecord"] == 12
    assert kinds["WitnessRecord"] == len(evidence(tmp_path)["witness"]) > 0


def test_radii_that_are_added_later_change_no_example(folder, tmp_path):
    evaluated(linear(), tmp_path, **{**ASKED, "eps": "0.1"})
    evaluated(linear(), tmp_path, **ASKED)
    run, other = load_run(tmp_path), load_run(folder)

    assert run.adversarial(eps="0.1").x_adv.equal(other.adversarial(eps="0.1").x_adv)
    assert check_kept(run, {}).contradictions == []


def test_keeping_them_changes_nothing_else(folder, tmp_path):
    evaluated(linear(), tmp_path, **{**ASKED, "keep_adversarial": False})
    without, with_them = evidence(tmp_path), evidence(folder)

    assert not without["witness"]
    assert not without["original"]
    assert all(without[name] == with_them[name] for name in ("clean", "attacked", "near", "queried", "picture"))


def test_what_was_not_kept_cannot_be_asked_for(tmp_path):
    evaluated(linear(), tmp_path, **{**ASKED, "keep_adversarial": False})
    with pytest.raises(UserError, match="--keep-adversarial"):
        load_run(tmp_path).adversarial()
    with pytest.raises(UserError, match="another --out"):
        evaluated(linear(), tmp_path, **ASKED)


@pytest.mark.parametrize(
    ("asked", "words"),
    [({}, "more than one eps"), ({"eps": "0.2"}, "0.2"), ({"eps": "0.1", "attack": "pgd"}, "pgd"),
     ({"eps": "0.1", "model": "other"}, "other")],
    ids=str,
)  # fmt: skip
def test_a_choice_that_the_run_does_not_have_is_one_sentence(asked, words, folder):
    with pytest.raises(UserError, match=words):
        load_run(folder).adversarial(**asked)


EDITS = {
    "another point": "UPDATE witness SET x_adv = (SELECT x_adv FROM witness ORDER BY sample DESC LIMIT 1)",
    "another clean image": "UPDATE original SET x = (SELECT x FROM original ORDER BY sample DESC LIMIT 1)",
    "no points": "DELETE FROM witness",
    "one point less": "DELETE FROM witness WHERE sample = (SELECT min(sample) FROM witness)",
    "a distance": "UPDATE attacked SET l2 = l2 * 1.0001 WHERE success = 1",
    "a verdict": "UPDATE attacked SET success = 0 WHERE success = 1 AND attack = 'fgsm'",
}
REFUSED = {
    "no point at all": "UPDATE witness SET x_adv = x''",
    "half a point": "UPDATE witness SET x_adv = substr(x_adv, 1, 20)",
    "a point of another shape": "UPDATE witness SET shape = '1 8 9'",
    "a huge point": "UPDATE witness SET shape = '99999 99999 99999'",
    "a point of another type": "UPDATE witness SET kind = 'int8'",
    "a point as a text": "UPDATE witness SET x_adv = 'x'",
    "no clean images": "DELETE FROM original",
    "a point of no verdict": "UPDATE witness SET sample = sample + 100",
}


def edited(folder, copy, statement):
    (copy / "run.sqlite").write_bytes((folder / "run.sqlite").read_bytes())
    with sqlite3.connect(copy / "run.sqlite") as store:
        assert store.execute(statement).rowcount > 0
    store.close()
    return load_run(copy)


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edit_of_the_examples_is_noticed(edit, folder, tmp_path):
    assert check_kept(edited(folder, tmp_path, edit), {}).contradictions


@pytest.mark.parametrize("edit", REFUSED.values(), ids=REFUSED)
def test_examples_that_robustkit_did_not_write_are_refused(edit, folder, tmp_path):
    run = edited(folder, tmp_path, edit)
    with pytest.raises(UserError, match="damaged or changed"):
        check_kept(run, {})
