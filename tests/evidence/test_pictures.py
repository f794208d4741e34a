"""Pictures of a run: their classes and confidences are those of the model at the stored pixels."""

import sqlite3

import pytest
import torch

from robustkit import Classifier, Smoothing, UserError, evaluate, load_run
from tests.small import data, linear


def made(folder, **changes):
    asked = {"attacks": "pgd:steps=3", "eps": ["0.1", "0.3"], **changes}
    return evaluate(linear(), dataset=data(8), out=folder, **asked)


@pytest.mark.parametrize("changes", [{}, {"eps": "minimum", "attacks": "deepfool"}], ids=["radii", "nearest errors"])
def test_confidences_are_the_softmax_of_the_model_at_the_pictures(changes, tmp_path):
    model, run = linear(), made(tmp_path, **changes)

    assert run.pictures
    for one in run.pictures:
        for pixels, label, confidence in [
            (one.x, one.clean_pred, one.clean_confidence), (one.x_adv, one.adv_pred, one.adv_confidence),
        ]:  # fmt: skip
            with torch.no_grad():
                probabilities = model(torch.from_numpy(pixels.copy())[None]).softmax(1)[0].tolist()
            assert confidence == pytest.approx(probabilities[label], abs=1e-4)


def test_a_model_that_votes_has_no_confidences(tmp_path):
    smoothed = Classifier(linear(), name="smoothed", smoothing=Smoothing(0.2, n=12, n0=4))
    run = evaluate(smoothed, dataset=data(4), attacks="pgd:steps=2", eps="0.1", out=tmp_path)

    assert {(one.clean_confidence, one.adv_confidence) for one in run.pictures} == {(None, None)}


def edited(folder, statement):
    with sqlite3.connect(folder / "run.sqlite") as store:
        store.execute(statement)
    store.close()


def test_a_run_of_an_older_version_has_pictures_without_confidences(tmp_path):
    made(tmp_path)
    edited(tmp_path, "DROP TABLE confidence")

    assert {one.adv_confidence for one in load_run(tmp_path).pictures} == {None}


@pytest.mark.parametrize("value", ["2", "-0.1", "'x'", "NULL"])
def test_a_confidence_that_is_no_probability_is_refused(value, tmp_path):
    made(tmp_path)
    edited(tmp_path, f"UPDATE confidence SET probability = {value}")

    with pytest.raises(UserError, match="confidence"):
        load_run(tmp_path)
