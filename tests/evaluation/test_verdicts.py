"""Every verdict in the evidence is checked again by hand: the picture, the model, the distance."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from robustkit import Classifier, evaluate
from robustkit.evidence.run import Run
from robustkit.primitives.threat import radius
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


def answers(points: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        return cnn()(torch.from_numpy(points.copy()).unsqueeze(0)).argmax(1)


def row_of(run: Run, picture):
    table = run.samples
    chosen = (table.eps_text == picture.eps_text) & (table.attack == picture.attack)
    (row,) = table[chosen & (table["sample"] == picture.sample)].itertuples()
    return row


@every_norm
def test_some_images_are_broken_and_some_are_not(norm):
    assert {"broken", "robust"} <= set(run(norm).samples.verdict)


@every_norm
def test_the_model_says_at_each_picture_what_the_evidence_says(norm):
    for picture in run(norm).pictures:
        row = row_of(run(norm), picture)

        assert answers(picture.x_adv) == picture.adv_pred == row.adv_pred
        assert (row.verdict == "broken") == (picture.adv_pred != picture.label)


@every_norm
def test_each_picture_shows_the_image_it_is_about(norm):
    x, y = data(24)
    for picture in run(norm).pictures:
        assert np.array_equal(picture.x, x[picture.sample].numpy())
        assert picture.label == y[picture.sample]
        assert answers(picture.x) == picture.clean_pred == picture.label


@every_norm
def test_each_point_lies_in_the_ball_exactly(norm):
    for picture in run(norm).pictures:
        delta = (picture.x_adv.astype(np.float64) - picture.x.astype(np.float64)).ravel()
        length = {"Linf": np.abs(delta).max(), "L2": np.sqrt((delta**2).sum()), "L1": np.abs(delta).sum()}
        size = length.get(norm, np.count_nonzero(delta))

        assert size <= radius(norm, picture.eps_text)
        assert picture.x_adv.min() >= 0
        assert picture.x_adv.max() <= 1


@every_norm
def test_the_distances_in_the_table_are_those_of_the_pictures(norm):
    for picture in run(norm).pictures:
        row = row_of(run(norm), picture)
        delta = (picture.x_adv.astype(np.float64) - picture.x.astype(np.float64)).ravel()

        assert row.linf == np.abs(delta).max()
        assert row.l0 == np.count_nonzero(delta)
        assert row.l1 == pytest.approx(np.abs(delta).sum(), rel=1e-12)
        assert row.l2 == pytest.approx(np.sqrt((delta**2).sum()), rel=1e-12)


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


def test_the_search_network_has_no_say_in_a_verdict():
    # Folded, in bf16, or as it is: what is stored holds for the caller's own model.
    made = evaluate(
        Classifier(cnn(), bf16=True), dataset=data(24), attacks=["fgsm", "pgd:steps=4"], eps=["0.02", "0.1"]
    )

    assert {picture.adv_pred != picture.label for picture in made.pictures} == {True, False}
    for picture in made.pictures:
        assert answers(picture.x_adv) == picture.adv_pred


def test_a_double_models_picture_is_its_witness():
    model = cnn().double()
    made = evaluate(model, dataset=data(24), attacks="pgd:steps=4", eps="0.1")
    for picture in made.pictures:
        with torch.no_grad():
            said = model(torch.from_numpy(picture.x_adv.copy()).double().unsqueeze(0)).argmax(1)
        delta = np.abs(picture.x_adv.astype(np.float64) - picture.x.astype(np.float64))

        assert said == picture.adv_pred
        assert delta.max() <= 0.1


class Wide(nn.Module):
    """Takes pixels from 0 to `top`."""

    def __init__(self, top: float) -> None:
        super().__init__()
        self.inner, self.top = linear(), top

    def forward(self, x):
        return self.inner(x / self.top)


@pytest.mark.parametrize("top", [255, 256])
def test_a_classifier_with_bounds_of_its_own_sees_the_same_images(top):
    settings = {"dataset": data(24), "attacks": ["fgsm", "tiny"], "eps": ["0.05", "0.1"]}
    wide = evaluate(Classifier(Wide(top), bounds=(0, top), name="m"), **settings)
    plain = evaluate(Classifier(linear(), name="m"), **settings)

    assert wide.results.accuracy.tolist() == pytest.approx(plain.results.accuracy.tolist(), abs=1 / 24)
    assert wide.results.accuracy[0] == plain.results.accuracy[0]


def test_bounds_that_scale_without_rounding_do_not_change_a_bit():
    settings = {"dataset": data(24), "attacks": ["fgsm", "tiny"], "eps": ["0.05", "0.1"]}
    wide = evaluate(Classifier(Wide(256), bounds=(0, 256), name="m"), **settings)
    plain = evaluate(Classifier(linear(), name="m"), **settings)

    assert wide.samples.equals(plain.samples)


def test_an_attack_that_aims_at_many_classes_aims_at_as_many_as_it_says():
    class Many(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :1] * torch.linspace(0, 1e-3, 30) + 50 * nn.functional.one_hot(torch.tensor(0), 30)

    made = evaluate(
        Many(), dataset=(data(3)[0], torch.zeros(3, dtype=torch.int64)), attacks="pgd:steps=2,targets=25", eps="0.1"
    )

    assert made.samples.forwards.tolist() == [75, 75, 75]
