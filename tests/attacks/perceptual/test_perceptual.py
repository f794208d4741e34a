"""Attacks in LPIPS: their distance is the formula of the paper, and with pixels as features it is L2."""

import pytest
import torch
from robustkit.attacks import LPA, PPGD
from torch import nn

from robustkit import UserError, attack
from robustkit.classifier.classifier import Classifier
from robustkit.evaluation.plan import plan
from robustkit.evaluation.threats import threats_of
from robustkit.primitives.lpips_ball import normalised
from robustkit.testing.doubles import PixelFeatures
from tests.attacks.linear import linear
from tests.problems import images, problem

both = pytest.mark.parametrize("kind", [LPA, PPGD])


def test_features_are_normalised_at_every_place_and_divided_by_the_root_of_the_number_of_places():
    one, other = images(2, 2, 3, 4, 5).double()
    total = torch.zeros(2).double()
    for row in range(4):
        for column in range(5):
            a, b = one[:, :, row, column], other[:, :, row, column]
            total += (a / a.norm(dim=1, keepdim=True) - b / b.norm(dim=1, keepdim=True)).square().sum(1) / 20

    torch.testing.assert_close((normalised([one]) - normalised([other])).norm(dim=1), total.sqrt())


def test_the_scale_of_a_layer_does_not_count_and_layers_add_up():
    one, other = images(2, 2, 3, 4, 5).double()
    single = (normalised([one]) - normalised([other])).norm(dim=1)

    torch.testing.assert_close((normalised([one, 7 * one]) - normalised([other, other])).norm(dim=1), single * 2**0.5)


def test_a_dead_place_has_a_gradient_of_zero():
    values = torch.zeros(1, 3, 2, 2, requires_grad=True)
    (grad,) = torch.autograd.grad(normalised([values.relu()]).sum(), values)

    assert torch.equal(grad, torch.zeros_like(grad))


# LPA's weights grow tenfold, so that the best of them may be missed by a factor.
@pytest.mark.parametrize(("kind", "share"), [(LPA, 0.75), (PPGD, 0.98)])
def test_with_pixels_as_features_the_nearest_error_is_that_of_l2(kind, share):
    made = linear(4, count=16)
    nearest = made.distance["L2"]
    eps = float(nearest.median())
    result = attack(made.model, made.x, made.y, kind(eps, "lpips", features=PixelFeatures(20)))

    assert result.success[nearest < share * eps].all()
    assert not result.success[nearest > eps].any()


@both
@pytest.mark.parametrize("network", [{}, {"network": nn.Conv2d(1, 2, 3)}], ids=["self", "module"])
def test_weights_without_a_network_that_they_are_for_were_not_read(kind, network):
    with pytest.raises(UserError, match="leave out weights"):
        kind(0.3, "lpips", weights="no-such-file.pt", **network)


@both
def test_the_distance_of_a_success_in_another_network_is_at_most_eps(kind):
    made, other = problem("cnn", 3, 8, 8), problem("cnn", 3, 8, 8, seed=5).model
    result = attack(made.model, made.x, made.y, kind(0.3, "lpips", network=other, layers="body.2+body.5", steps=5))
    with torch.no_grad():
        far, near = (normalised([other.body[:3](x), other.body(x)]) for x in (result.x_adv, made.x))

    assert result.success.any()
    assert (far - near).norm(dim=1).max() <= 0.3


def test_passes_of_another_network_are_not_those_of_the_model():
    made, other = problem("cnn", 1, 8, 8), problem("cnn", 1, 8, 8, seed=5).model
    method = PPGD(0.0, "lpips", steps=1, projections=0)
    own, others = (attack(made.model, made.x, made.y, each) for each in (
        method, PPGD(0.0, "lpips", steps=1, projections=0, network=other)))  # fmt: skip

    assert torch.equal(own.forwards, others.forwards + 2)  # the features of the image and of its last point


def test_stages_are_the_layers_of_a_residual_network_and_activations_those_of_others():
    class Stages(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer1 = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())
            self.layer2 = nn.Conv2d(2, 2, 3)
            self.head = nn.Linear(32, 3)

        def forward(self, x):
            return self.head(self.layer2(self.layer1(x)).flatten(1))

    def layers(model, shape=(1, 8, 8)):
        x = images(2, *shape)
        with Classifier(model, fold=False).session(x) as session:
            return session.prepared(LPA(1, "lpips"), x).features.layers

    assert layers(Stages().eval()) == ("layer1", "layer2")
    assert layers(problem("cnn", 1, 8, 8).model) == ("body.2", "body.5")
    assert layers(problem("linear", 12).model, (12,)) == ("1",)


def test_an_image_that_the_other_network_does_not_take_is_one_line():
    made, other = problem("cnn", 1, 8, 8), problem("cnn", 3, 8, 8).model

    with pytest.raises(UserError, match="SmallConvNet does not take these images"):
        attack(made.model, made.x, made.y, PPGD(0.1, "lpips", network=other))


def test_features_of_two_networks_are_not_put_into_one_table():
    with pytest.raises(UserError, match="different networks or layers"):
        plan(["lpa", "ppgd:layers=body.2"], threats_of(["lpips"], ["0.5"], []))
