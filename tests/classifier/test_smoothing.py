"""Smoothing of linear classifiers, whose smoothed class and certified radius are known in closed form."""

import math
from statistics import NormalDist

import pytest
import torch
from robustkit.defenses.inner_attack.crafting import craft, noise_keys
from robustkit.defenses.inner_attack.gaussian import Gaussian
from torch import Tensor, nn

from robustkit import Classifier, Smoothing
from robustkit.engine.certify import certify, predict
from robustkit.errors import UserError
from robustkit.statistics.randomized_smoothing import ABSTAINS, lower_bound

torch.set_num_threads(1)

SIGMA = 0.3


def halfspace(values: int = 12) -> tuple[nn.Module, Tensor]:
    """A linear classifier of two classes, and its normal vector."""
    weights = torch.linspace(-1, 1, values)
    network = nn.Sequential(nn.Flatten(), nn.Linear(values, 2))
    with torch.no_grad():
        network[1].weight.copy_(torch.stack([-weights / 2, weights / 2]))
        network[1].bias.zero_()
    return network.eval(), weights


def images(count: int, values: int = 12) -> Tensor:
    return torch.rand(count, 1, 1, values, generator=torch.Generator().manual_seed(5))


def distances(x: Tensor, weights: Tensor) -> Tensor:
    return (x.flatten(1).double() @ weights.double()) / weights.double().norm()


def test_a_certified_radius_is_below_the_true_one_and_near_it():
    network, weights = halfspace()
    x = images(30)
    true = distances(x, weights)

    proof = certify(network, x, sigma=SIGMA, n=4000)

    certain = proof.prediction != ABSTAINS
    assert certain.sum() > 20
    assert torch.equal(proof.prediction[certain], (true[certain] > 0).long())
    # A linear classifier predicts the same class under noise with probability Phi(distance / sigma).
    assert (proof.radius <= true.abs() + 1e-9).all()
    for radius, distance in zip(proof.radius, true.abs().tolist(), strict=True):
        expected = round(4000 * NormalDist().cdf(distance / SIGMA))
        at = SIGMA * NormalDist().inv_cdf(max(0.5, lower_bound(expected, 4000, 0.001)))
        assert radius == pytest.approx(at, abs=0.12 * SIGMA)


class Centred(nn.Module):
    """A network that subtracts the mean over the images of its batch."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0)).flatten(1)[:, :2]


class Turning(nn.Module):
    """A network that exchanges its classes after twenty calls."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x.flatten(1)[:, :2].flip(1) if self.calls > 20 else x.flatten(1)[:, :2]


@pytest.mark.parametrize(("network", "words"), [(Centred, "other images"), (Turning, "other answers")])
@pytest.mark.parametrize("judged", [certify, predict])
def test_a_network_without_an_answer_of_its_own_for_each_image_got_certificates(judged, network, words):
    with pytest.raises(UserError, match=words):
        judged(network(), images(3), sigma=SIGMA, n=500, batch_size=20)


@pytest.mark.parametrize("judged", [certify, predict])
def test_the_noise_of_a_smoothed_classifier_was_replaced_in_silence(judged):
    smoothed = Classifier(halfspace()[0], name="half", smoothing=Smoothing(0.5))

    with pytest.raises(UserError, match=r"half is smoothed with sigma 0\.5 already"):
        judged(smoothed, images(2), sigma=SIGMA, n=200)


def test_the_model_abstains_on_points_of_the_decision_boundary():
    network, weights = halfspace()
    x = images(20)
    on = (x.flatten(1) - distances(x, weights).float()[:, None] * weights / weights.norm()).reshape(x.shape)
    on = on[(on >= 0).flatten(1).all(1) & (on <= 1).flatten(1).all(1)]

    assert len(on) > 3
    assert (predict(network, on, sigma=SIGMA, n=200) == ABSTAINS).all()
    proof = certify(network, on, sigma=SIGMA, n=200)
    assert (proof.prediction == ABSTAINS).all()
    assert (proof.radius == 0).all()


def test_a_prediction_is_the_side_on_which_the_point_lies():
    network, weights = halfspace()
    x = images(30)

    prediction = predict(network, x, sigma=SIGMA, n=400)

    certain = prediction != ABSTAINS
    assert certain.sum() > 20
    assert torch.equal(prediction[certain], (distances(x, weights)[certain] > 0).long())


def test_a_certificate_depends_on_neither_the_batch_nor_the_order():
    network, _ = halfspace()
    x = images(6)
    whole = certify(network, x, sigma=SIGMA, n=300)

    order = [4, 0, 5]
    some = certify(network, x[order], sigma=SIGMA, n=300, ids=order, batch_size=37)

    assert torch.equal(some.prediction, whole.prediction[order])
    assert torch.equal(some.probability, whole.probability[order])


def test_another_seed_gives_other_noise():
    network, _ = halfspace()
    x = images(6)

    probabilities = [certify(network, x, sigma=SIGMA, n=300, seed=seed).probability for seed in (0, 1)]

    assert not torch.equal(*probabilities)


def test_the_class_and_its_bound_come_from_different_noise():
    # With as many copies for both, shared noise would give every chosen class at least half of the votes.
    x = images(40)
    network, weights = halfspace()
    on = (x.flatten(1) - distances(x, weights).float()[:, None] * weights / weights.norm()).clamp(0, 1).reshape(x.shape)

    proof = certify(network, on, sigma=SIGMA, n0=25, n=25, alpha=0.49)

    assert (proof.probability < 0.4).any()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sigma": 0.0}, "sigma must be"),
        ({"sigma": math.nan}, "sigma must be"),
        ({"alpha": 0.7}, "alpha"),
        ({"n": 0}, "at least 1"),
        ({"ids": [1]}, "2 images and 1 ids"),
    ],
    ids=str,
)
def test_arguments_out_of_range_are_refused(changes, words):
    network, _ = halfspace()

    with pytest.raises(UserError, match=words):
        certify(network, images(2), **{"sigma": SIGMA, "n": 10, **changes})


def test_gaussian_training_noise_is_normal_and_the_same_in_any_batch():
    x = images(400)
    y = torch.zeros(400, dtype=torch.int64)
    keys = noise_keys(0, 3, torch.arange(400))

    def never(query: Tensor) -> Tensor:
        raise AssertionError("asked")

    noisy = craft(never, Gaussian(0.1, sigma=0.25), x, y, keys)
    some = craft(never, Gaussian(0.1, sigma=0.25), x[7:9], y[7:9], keys[7:9])

    shift = noisy - x
    assert shift.std().item() == pytest.approx(0.25, rel=0.05)
    assert shift.mean().item() == pytest.approx(0, abs=0.02)
    assert torch.equal(some, noisy[7:9])
