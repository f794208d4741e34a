import pytest
import torch
from robustkit.attacks import DDN
from torch import nn

from robustkit.classifier.answers import answered
from tests.attacks.driving import last_state, nearest_of_all_classes, towards, untargeted
from tests.attacks.linear import linear


def test_trials_aimed_at_each_class_find_the_nearest_error_of_a_linear_classifier():
    made = linear(5, count=20)
    method = DDN(1, "L2", steps=300, loss="margin")
    distance = nearest_of_all_classes(method, made.model, made.x, made.y, 5)

    assert torch.allclose(distance, made.distance["L2"].double(), rtol=0.01, atol=1e-5)


def test_the_radius_shrinks_after_an_error_and_grows_otherwise():
    x, y = torch.full((2, 4), 0.5), torch.tensor([0, 1])
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    method = DDN(1, "L2", radius=0.1)
    state = method.init(untargeted(x, y))

    after = method.step(state, answered(method, state, model))

    assert after.radius.tolist() == pytest.approx([0.105, 0.095])


def test_an_image_without_a_gradient_is_left_in_a_random_direction():
    # A direction of zero length would be divided by: adv-lib and foolbox draw one from the global generator.
    x, y = torch.full((2, 4), 0.5), torch.zeros(2, dtype=torch.int64)
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([1.0, 0.0]))
    state = last_state(DDN(1, "L2", steps=3), model, untargeted(x, y))

    assert (state.query != x).all()
    assert not torch.equal(state.query[0], state.query[1])


def test_a_target_is_reached_although_other_classes_are_in_front():
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(DDN(1, "L2"), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()


def test_points_have_the_levels_of_a_picture_file():
    made = linear(3)
    state = last_state(DDN(1, "L2", steps=20, levels=256), made.model, untargeted(made.x, made.y))
    found = state.nearest[state.distance.isfinite()] * 255

    assert len(found) > 50
    assert torch.allclose(found, found.round(), atol=1e-4)
