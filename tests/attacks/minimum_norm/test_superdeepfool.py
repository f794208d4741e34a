import pytest
import torch
from robustkit.attacks import DeepFool, SuperDeepFool
from torch import nn

from robustkit import attack
from robustkit.classifier.answers import answered
from tests.attacks.driving import last_state, towards, untargeted
from tests.attacks.linear import linear, scaled
from tests.problems import problem


@pytest.mark.parametrize("classes", [2, 5])
def test_the_nearest_error_of_a_linear_classifier_is_that_of_the_closed_form(classes):
    made = linear(classes)
    state = last_state(SuperDeepFool(1, "L2"), made.model, untargeted(made.x, made.y))

    assert torch.allclose(state.distance, made.distance["L2"].double(), rtol=0.01)
    assert (state.distance >= made.distance["L2"].double() - 1e-6).all()


def test_an_error_is_projected_onto_the_line_along_its_gradient():
    # The boundary is x_0 + x_1 = 1.6 (of pixels), and the error lies off the line along its normal.
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        model.bias.copy_(torch.tensor([0.0, -1.6]))
    x = torch.tensor([[0.5, 0.7], [0.5, 0.7]])
    method = SuperDeepFool(1, "L2")
    state = method.init(untargeted(x, torch.zeros(2, dtype=torch.int64)))
    state = type(state)(**{**vars(state), "query": torch.tensor([[0.9, 0.8], [0.5, 0.7]])})

    after = method.step(state, answered(method, state, model))

    assert torch.allclose(after.query[0], torch.tensor([0.75, 0.95]))
    assert after.projected.tolist() == [True, False]


def test_it_ends_nearer_than_deepfool():
    made = problem("cnn", 1, 8, 8, count=20)
    near, first = (
        last_state(method, made.model, untargeted(made.x, made.y)).distance
        for method in (SuperDeepFool(1, "L2"), DeepFool(1, "L2"))
    )

    assert (near <= first).all()
    assert near.median() < first.median()


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_scale_of_the_logits_changes_nothing(factor):
    made = linear(5)
    plain, louder = (
        last_state(SuperDeepFool(1, "L2"), model, untargeted(made.x, made.y))
        for model in (made.model, scaled(made, factor))
    )

    assert torch.allclose(plain.distance, louder.distance, rtol=5e-3)  # bisection in 1,024 parts


def test_a_target_is_reached_although_other_classes_are_in_front():
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(SuperDeepFool(1, "L2"), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()


def test_without_a_radius_every_image_has_a_verified_distance():
    made = problem("cnn", 1, 8, 8, count=6)
    result = attack(made.model, made.x, made.y, SuperDeepFool("minimum", "L2", steps=20))

    assert result.success.all()
    assert (result.queries <= 2 * (20 + 1) + 10).all()


def test_gradients_of_all_classes_are_taken_only_before_the_first_error():
    # Nine gradients at every query, bisection and projected errors included, were nine tenths of the passes.
    made = linear(5)
    result = attack(made.model, made.x, made.y, SuperDeepFool("minimum", "L2", bisections=10))

    # The image with four classes, then its error and the projection of the error with one each.
    assert (result.backwards <= 4 + 1 + 1).all()
    assert (result.forwards > 10 + result.backwards // 4).all()
