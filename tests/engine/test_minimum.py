"""Without a radius the distance of the nearest error is the result."""

import pytest
import torch
from robustkit.attacks import FAB
from torch import nn

from robustkit import attack
from robustkit.primitives.threat import ball
from tests.attacks.linear import linear

NORMS = ["Linf", "L2", "L1"]


@pytest.mark.parametrize(
    ("method", "norm"),
    [*(("fab-t:steps=20", norm) for norm in NORMS), ("fab:steps=20,restarts=2", "L2"),
     *(pytest.param("fab:steps=20,restarts=2", norm, marks=pytest.mark.slow) for norm in ("Linf", "L1"))],
)  # fmt: skip
def test_on_a_linear_model_the_distance_is_that_of_the_closed_form(norm, method):
    made = linear(5, count=24)
    result = attack(made.model, made.x, made.y, method, norm=norm, eps="minimum")
    distance = ball(norm, 0).distance(made.x, result.x_adv)

    assert result.success.all()
    assert torch.allclose(distance, made.distance[norm].double(), rtol=0.01, atol=1e-6)
    assert (distance >= made.distance[norm] - 1e-6).all()
    with torch.no_grad():
        assert (made.model(result.x_adv).argmax(1) != made.y).all()


def test_batch_size_and_order_do_not_change_a_bit():
    made = linear(4, count=8)
    whole = attack(made.model, made.x, made.y, "fab:steps=9,restarts=2", norm="L2", eps="minimum")
    parts = attack(made.model, made.x.flip(0), made.y.flip(0), "fab:steps=9,restarts=2", norm="L2", eps="minimum",
                   batch_size=3, numbers=range(len(made.x) - 1, -1, -1))  # fmt: skip

    assert torch.equal(parts.x_adv.flip(0), whole.x_adv)
    assert torch.equal(parts.forwards.flip(0), whole.forwards)


def test_the_nearest_of_all_target_classes_counts_and_not_the_first():
    made = linear(5)
    one, all_of_them = (
        attack(made.model, made.x, made.y, FAB("minimum", "L2", steps=9, targets=count)) for count in (1, 4)
    )
    near, nearest = (ball("L2", 0).distance(made.x, each.x_adv) for each in (one, all_of_them))

    assert (nearest <= near).all()
    assert (nearest < near).any()


def test_an_error_that_the_model_does_not_confirm_is_moved_away_until_it_does(monkeypatch):
    made = linear(3)
    seen = []

    def wrong_at_first(self, point, scores, label, other):
        seen.append(label)
        return len(seen) % 3 == 0  # two of three points are not confirmed

    monkeypatch.setattr("robustkit.classifier.oracle.Plain.sure", wrong_at_first)
    result = attack(made.model, made.x[:1], made.y[:1], "fab:steps=30", norm="L2", eps="minimum")
    distance = ball("L2", 0).distance(made.x[:1], result.x_adv)

    assert result.success.all()
    assert (distance > made.distance["L2"][:1]).all()
    assert (distance < 1.02 * made.distance["L2"][:1]).all()


def test_a_model_without_errors_has_no_distance():
    constant = nn.Linear(3, 2)
    with torch.no_grad():
        constant.weight.zero_().add_(1e-6 * torch.eye(2, 3))
        constant.bias.copy_(torch.tensor([5.0, -5.0]))
    result = attack(constant, torch.rand(1, 3), torch.tensor([0]), "fab:steps=20", norm="L2", eps="minimum")

    assert not result.success.any()


@pytest.mark.parametrize("method", ["fab:steps=9,restarts=2", "pgd:steps=3,restarts=2"])
def test_pixels_of_any_range_have_the_same_nearest_error(method):
    made = linear(4)
    layer = nn.Linear(20, 4).double()
    with torch.no_grad():
        layer.weight.copy_(made.model[0].weight / 255)
        layer.bias.copy_(made.model[0].bias)
    usual = attack(made.model, made.x[:4], made.y[:4], method, norm="L2", eps="minimum")
    wide = attack(layer, made.x[:4].double() * 255, made.y[:4], method, norm="L2", eps="minimum", bounds=(0, 255))
    distances = ball("L2", 0).distance(made.x[:4], usual.x_adv), ball("L2", 0).distance(made.x[:4], wide.x_adv / 255)

    assert torch.allclose(*distances, rtol=1e-4)
