"""`robustkit.attack` with an ensemble: the verdicts of an evaluation, as tensors."""

import pytest
import torch
from robustkit.attacks import PGD
from torch import nn

import robustkit
from robustkit import Classifier, UserError, evaluate
from robustkit.primitives.stage import Stage
from tests.small import TINY, broken, data, ensemble, linear


@pytest.fixture
def tiny():
    """The name of an ensemble of three weak attacks, each of which breaks some images."""
    stages = [Stage(each, str(number)) for number, each in enumerate(TINY)]
    with ensemble("tiny", {"Linf": stages, "L2": stages, "L1": stages}) as name:
        yield name


def test_an_ensemble_gives_tensors_with_the_verdicts_of_an_evaluation(tiny):
    x, y = data()
    model = linear()

    result = robustkit.attack(model, x, y, tiny, eps="0.1", batch_size=7)

    run = evaluate(model, dataset=(x, y), attacks=tiny, eps="0.1")
    assert set(result.success.nonzero().flatten().tolist()) == broken(run, tiny) != set()
    assert torch.equal(result.prediction, model(result.x_adv).argmax(1))
    assert torch.equal(result.success | ~result.clean_correct, result.prediction != y)
    assert (result.x_adv.double() - x.double()).abs().max() <= 0.1
    assert torch.equal(result.x_adv[~result.success], x[~result.success])
    assert result.robust_accuracy == run.results["accuracy"].iloc[-1]
    rows = run.results[run.results["attack"].isin(["clean", tiny])]
    assert int(result.forwards.sum()) == rows["forwards"].sum()
    assert int(result.backwards.sum()) == rows["backwards"].sum()


def test_a_normalised_classifier_and_a_mask_are_attacked(tiny):
    x, y = data()
    model = Classifier(nn.Sequential(Undone(), linear()), mean=[0.5], std=[0.5])

    result = robustkit.attack(model, x, y, tiny, eps="0.3", mask="patch:2,2,4,4")

    changed = (result.x_adv != x).flatten(1).any(0).reshape(8, 8)
    assert result.success.any()
    assert not changed[:2].any()
    assert not changed[6:].any()


class Undone(nn.Module):
    def forward(self, x):
        return x * 0.5 + 0.5


def test_signs_of_a_failed_attack_become_warnings():
    x, y = data()
    model = nn.Sequential(Rounded(), linear())

    with pytest.warns(UserWarning, match="gradient"):
        robustkit.attack(model, x, y, "rk-1", eps="0.05")


class Rounded(nn.Module):
    def forward(self, x):
        return (x * 3).round() / 3 + 0 * x  # a gradient of exactly zero everywhere


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a radius; add eps="),
        ({"eps": "0.1", "target": torch.zeros(30, dtype=torch.int64)}, "which has no target"),
        ({"eps": "0.1", "surrogate": linear()}, "which has no surrogate"),
        ({"eps": "0.1", "bounds": (0.0, 255.0)}, r"float32 images in \[0, 1\], not float32 in \[0.0, 255.0\]"),
        ({"eps": "0.1", "epz": 1}, "epz"),
    ],
)
def test_what_an_ensemble_cannot_do_is_one_line(tiny, options, message):
    with pytest.raises(UserError, match=message):
        robustkit.attack(linear(), *data(), tiny, **options)


def test_other_types_than_float32_are_refused_and_single_attacks_take_them(tiny):
    x, y = data()

    with pytest.raises(UserError, match="not float64"):
        robustkit.attack(linear(), x.double(), y, tiny, eps="0.1")
    assert robustkit.attack(linear(), x.double(), y, PGD(eps="0.1", steps=3)).success.any()


@pytest.mark.parametrize("options", [{"eps": 0}, {"eps": "1/10000"}])
def test_nothing_broken_gives_the_images_back(tiny, options):
    """It ended in a shape mismatch after the whole evaluation."""
    x, y = data()

    result = robustkit.attack(linear(), x, y, tiny, **options)

    assert not result.success.any()
    assert torch.equal(result.x_adv, x)


def test_images_that_are_all_misclassified_and_one_image_are_taken(tiny):
    x, y = data()

    with pytest.warns(UserWarning, match="0 of 30 clean images correctly"):
        wrong = robustkit.attack(linear(), x, (linear()(x).argmax(1) + 1) % 10, tiny, eps="0.1")

    assert not wrong.success.any()
    assert len(robustkit.attack(linear(), x[:1], y[:1], tiny, eps="0.1").x_adv) == 1


def test_a_model_in_double_precision_gives_the_points_that_it_judged(tiny):
    x, y = data()
    model = linear().double()

    result = robustkit.attack(model, x, y, tiny, eps="0.1")

    assert result.success.any()
    assert torch.equal(model(result.x_adv.double()).argmax(1), result.prediction)


def test_the_share_of_single_answers_of_a_randomized_model_is_not_known(tiny):
    """It was 0 or 1, as of a model that repeats its answers."""
    x, y = data(6)

    with pytest.warns(UserWarning, match="is randomized"):
        result = robustkit.attack(nn.Sequential(Noisy(), linear()), x, y, tiny, eps="0.05")

    assert result.right_draws.isnan().all()


class Noisy(nn.Module):
    def forward(self, x):
        return x + 0.02 * torch.randn_like(x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, y[:, None]), r"labels \[N\], not .* with \[30, 1\]"),
        (lambda x, y: (x[:, 0], y), r"images \[N, C, H, W\]"),
        (lambda x, y: (x, y, [0.05, 0.1]), "at one radius"),
    ],
)
def test_other_shapes_and_several_radii_are_refused_before_the_attack(tiny, change, message):
    x, y, *eps = change(*data())

    with pytest.raises(UserError, match=message):
        robustkit.attack(linear(), x, y, tiny, eps=eps[0] if eps else 0.1)
