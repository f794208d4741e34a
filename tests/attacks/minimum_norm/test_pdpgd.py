import math

import pytest
import torch
from robustkit.attacks import PDPGD
from robustkit.attacks.minimum_norm.pdpgd import proximal
from torch import nn

from robustkit.classifier.answers import answered
from robustkit.errors import UserError
from robustkit.primitives.rows import along
from tests.attacks.driving import last_state, nearest_of_all_classes, towards, untargeted
from tests.attacks.linear import linear, scaled, sparse_linear
from tests.problems import images

ORDER = {"Linf": math.inf, "L2": 2.0, "L1": 1.0}


@pytest.mark.parametrize("norm", ["L2", "Linf", "L1"])
def test_the_proximal_point_is_better_than_all_points_around_it(norm):
    change = images(5, 6) - 0.5
    pull = along(torch.tensor([0.01, 0.1, 0.3, 0.6, 3.0]), change)
    point = proximal(norm, change, pull)

    def value(there):
        distance = there.norm(p=ORDER[norm], dim=-1)
        return pull.squeeze(1) * distance + ((there - change) ** 2).sum(-1) / 2

    for size in (1e-3, 1e-1):
        around = point + size * torch.randn(500, 5, 6, generator=torch.Generator().manual_seed(0))
        assert (value(around) >= value(point) - 1e-6).all()


def test_in_l0_the_proximal_point_is_the_best_of_all():
    change = torch.linspace(-1, 1, 41).double().reshape(41, 1)
    grid = torch.linspace(-1, 1, 20001).double()
    for strength in (1e-4, 0.01, 0.1, 0.3):
        pull = torch.full((41, 1), strength).double()
        point = proximal("L0", change, pull)

        def value(there, pull=strength):
            return pull * there.abs() ** (2 / 3) + (there - change) ** 2 / 2

        assert (value(point) <= value(grid).amin(1, keepdim=True) + 1e-9).all()
        assert (point == 0).any()


@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_few_values_are_changed_in_l0_although_logits_are_large(factor):
    made = sparse_linear(3)
    model = scaled(made, factor)
    state = last_state(PDPGD(1, "L0", steps=100), model, untargeted(made.x, made.y))

    assert (state.distance >= made.fewest).all()
    assert (state.distance - made.fewest).median() <= 1


def test_the_weight_of_the_distance_falls_without_an_error_and_rises_with_one():
    x, y = torch.full((2, 4), 0.5), torch.tensor([0, 1])
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    method = PDPGD(1, "L2")
    state = method.init(untargeted(x, y))

    after = method.step(state, answered(method, state, model))

    assert (after.dual - state.dual).tolist() == pytest.approx([0.1, -0.1])
    ratio = 0.01 * math.exp(0.1)  # of the weights after the error
    assert after.share[1].item() == pytest.approx(0.9 * 0.01 / 1.01 + 0.1 * ratio / (1 + ratio))


def test_a_target_is_reached_although_other_classes_are_in_front():
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(PDPGD(1, "L2", steps=60), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()


def test_trials_aimed_at_each_class_are_never_farther_than_the_true_distance_allows():
    made = linear(5)
    distance = nearest_of_all_classes(PDPGD(1, "L1", steps=60), made.model, made.x[:20], made.y[:20], 5)

    assert (distance >= made.distance["L1"][:20].double() * (1 - 1e-5)).all()
    assert distance.isfinite().all()


def test_a_weight_of_nothing_is_refused():
    with pytest.raises(UserError, match="first_ratio must be a number of at least"):
        PDPGD(1, "L2", first_ratio=0.0)
