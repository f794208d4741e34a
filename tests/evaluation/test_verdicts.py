"""Every verdict in the evidence is recomputed from its picture: the prediction and the distance."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from robustkit import Classifier, evaluate
from robustkit.evidence.picture import Picture
from robustkit.evidence.run import Run
from robustkit.primitives.threat import radius
from tests.networks import Changed, Constant
from tests.small import cnn, data, linear

CASES = {
    "Linf": (["0.03", "8/255", "0.1"], ["fgsm", "apgd-ce:steps=5", "tiny"]),
    "L2": (["0.3", "0.7"], ["fgsm", "apgd-ce:steps=5", "square:queries=20"]),
    "L1": (["1", "3"], ["fgsm", "apgd-ce:steps=5", "square:queries=20"]),
    "L0": (["3", "12"], ["noise:queries=10"]),
}
every_norm = pytest.mark.parametrize("norm", CASES)


@cache
def run(norm: str) -> Run:
    eps, attacks = CASES[norm]
    return evaluate(cnn(), dataset=data(24), attacks=attacks, norm=norm, eps=eps)


MODEL = cnn()


def answers(points: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return MODEL(torch.from_numpy(points.copy()).unsqueeze(0)).argmax(1)


def shown(norm: str) -> Iterator[tuple[Picture, Any]]:
    """The pictures of a run with their rows in the table."""
    table = run(norm).samples
    rows = {(row.eps_text, row.attack, row.sample): row for row in table.itertuples()}
    assert len(rows) == len(table)
    for picture in run(norm).pictures:
        yield picture, rows[picture.eps_text, picture.attack, picture.sample]


@every_norm
def test_some_images_are_broken_and_some_are_not(norm):
    assert {"broken", "robust"} <= set(run(norm).samples.verdict)


@every_norm
def test_each_picture_shows_its_image_and_the_prediction_in_the_evidence(norm):
    x, y = data(24)
    for picture, row in shown(norm):
        assert np.array_equal(picture.x, x[picture.sample].numpy())
        assert answers(picture.x) == picture.clean_pred == picture.label == y[picture.sample]
        assert answers(picture.x_adv) == picture.adv_pred == row.adv_pred
        assert (row.verdict == "broken") == (picture.adv_pred != picture.label)


@every_norm
def test_each_picture_lies_in_the_ball_at_the_distances_in_the_table(norm):
    for picture, row in shown(norm):
        delta = (picture.x_adv.astype(np.float64) - picture.x.astype(np.float64)).ravel()
        lengths = {"Linf": np.abs(delta).max(), "L2": np.sqrt((delta**2).sum()), "L1": np.abs(delta).sum()}
        lengths["L0"] = np.count_nonzero(delta)

        assert lengths[norm] <= radius(norm, picture.eps_text)
        assert picture.x_adv.min() >= 0
        assert picture.x_adv.max() <= 1
        assert (row.linf, row.l0) == (lengths["Linf"], lengths["L0"])
        assert (row.l1, row.l2) == pytest.approx((lengths["L1"], lengths["L2"]), rel=1e-12)


@every_norm
def test_no_distance_in_the_table_exceeds_its_radius(norm):
    table = run(norm).samples.dropna(subset=["linf"])

    assert len(table)
    assert (table[norm.lower()].astype(float) <= table.eps).all()


@every_norm
def test_a_broken_row_has_a_wrong_prediction_and_a_robust_one_the_label(norm):
    table = run(norm).samples
    broken, robust = table[table.verdict == "broken"], table[table.verdict == "robust"]

    assert (broken.adv_pred != broken.label).all()
    assert (robust.adv_pred == robust.label).all()
    assert (table[table.verdict == "clean-wrong"].clean_pred != table[table.verdict == "clean-wrong"].label).all()


def test_verdicts_are_those_of_the_callers_model_and_not_of_the_search_network():
    evaluated = evaluate(
        Classifier(cnn(), bf16=True), dataset=data(24), attacks=["fgsm", "pgd:steps=4"], eps=["0.02", "0.1"]
    )

    assert {picture.adv_pred != picture.label for picture in evaluated.pictures} == {True, False}
    for picture in evaluated.pictures:
        assert answers(picture.x_adv) == picture.adv_pred


def test_a_picture_of_a_float64_model_is_its_witness():
    model = cnn().double()
    evaluated = evaluate(model, dataset=data(24), attacks="pgd:steps=4", eps="0.1")
    for picture in evaluated.pictures:
        with torch.no_grad():
            prediction = model(torch.from_numpy(picture.x_adv.copy()).double().unsqueeze(0)).argmax(1)
        delta = np.abs(picture.x_adv.astype(np.float64) - picture.x.astype(np.float64))

        assert prediction == picture.adv_pred
        assert delta.max() <= 0.1


@pytest.mark.parametrize("top", [255, 256])
def test_pixels_in_another_range_give_the_same_results(top):
    settings = {"dataset": data(24), "attacks": ["fgsm", "tiny"], "eps": ["0.05", "0.1"]}
    model = Changed(linear(), before=lambda x: x / top)
    wide = evaluate(Classifier(model, bounds=(0, top), name="m"), **settings)
    plain = evaluate(Classifier(linear(), name="m"), **settings)

    # A division by 255 rounds, a division by 256 does not.
    assert top == 255 or wide.samples.equals(plain.samples)
    assert wide.results.accuracy.tolist() == pytest.approx(plain.results.accuracy.tolist(), abs=1 / 24)
    assert wide.results.accuracy[0] == plain.results.accuracy[0]


def test_an_attack_on_25_targets_aims_at_all_of_them():
    evaluated = evaluate(
        Constant(0, classes=30),
        dataset=(data(3)[0], torch.zeros(3, dtype=torch.int64)),
        attacks="pgd:steps=2,targets=25",
        eps="0.1",
    )

    assert evaluated.samples.forwards.tolist() == [75, 75, 75]
