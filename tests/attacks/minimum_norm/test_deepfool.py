import pytest
import torch
from robustkit.attacks import DeepFool

from robustkit import attack
from tests.attacks.driving import last_state, towards, untargeted
from tests.attacks.linear import linear, scaled


@pytest.mark.parametrize("norm", ["L2", "Linf"])
@pytest.mark.parametrize("classes", [2, 5])
def test_one_step_ends_just_beyond_the_boundary_of_a_linear_classifier(norm, classes):
    made = linear(classes)
    state = last_state(DeepFool(1, norm), made.model, untargeted(made.x, made.y))

    assert (state.queries == 2).all()
    assert torch.allclose(state.distance, 1.02 * (made.distance[norm].double() + 1e-4), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("norm", ["L2", "Linf"])
def test_the_overshoot_is_all_that_is_too_far(norm):
    made = linear(5)
    state = last_state(DeepFool(1, norm, overshoot=0.001), made.model, untargeted(made.x, made.y))

    assert torch.allclose(state.distance, made.distance[norm].double(), rtol=0.01, atol=2e-4)


@pytest.mark.parametrize("norm", ["L2", "Linf"])
def test_a_target_is_reached_although_other_classes_are_in_front(norm):
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(DeepFool(1, norm), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()


@pytest.mark.parametrize("norm", ["L2", "Linf"])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_the_scale_of_the_logits_changes_nothing(norm, factor):
    made = linear(5)
    plain, louder = (
        last_state(DeepFool(1, norm), model, untargeted(made.x, made.y)) for model in (made.model, scaled(made, factor))
    )

    assert torch.allclose(plain.distance, louder.distance, rtol=1e-3, atol=1e-6)


def test_a_step_costs_one_forward_and_one_backward_per_class():
    # foolbox repeats the forward for each class; torchattacks goes image by image and class by class.
    made = linear(5)
    result = attack(made.model, made.x[:4], made.y[:4], DeepFool(1e-6, "L2", steps=1, classes=3))

    # At the image and at the end of the step; clean images and verdicts cost a forward each.
    assert result.backwards.tolist() == [3 * 2] * 4
    assert result.forwards.tolist() == [1 + 2 + 1] * 4


def test_a_trial_ends_at_its_first_error():
    made = linear(3)
    state = last_state(DeepFool(1, "L2", steps=50), made.model, untargeted(made.x, made.y))

    assert (state.queries < 5).all()
