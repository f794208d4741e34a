import pytest
import torch
from robustkit.attacks import CW
from robustkit.attacks.minimum_norm._weights import begin_search, searched
from torch import nn

from robustkit.classifier.answers import answered
from robustkit.primitives import losses
from tests.attacks.driving import last_state, towards, untargeted
from tests.attacks.linear import linear


def test_the_gradient_does_not_vanish_where_all_logits_are_negative():
    # torchattacks masks logits by a product, so that a masked logit is 0 and hides all negative ones.
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
        model.bias.copy_(torch.tensor([-5.0, -6.0, -8.0]))
    x, y = torch.full((1, 2), 0.5), torch.tensor([0])
    method = CW(1, "L2")
    seen = answered(method, method.init(untargeted(x, y)), model)

    assert seen.loss.item() == pytest.approx(-1, abs=1e-5)
    assert seen.grad.tolist() == [[-1, 1]]


def test_the_weight_grows_until_there_is_an_error_and_is_then_bisected():
    # torchattacks has no search at all: one weight for every image.
    search = begin_search(1.0, torch.zeros(1, 2))
    values = []
    for error in (False, False, True, False):
        search = searched(search, torch.tensor([error]), torch.zeros(1), steps=1, abort_early=False)
        values.append(search.value.item())

    assert values == [10, 100, 55, 77.5]


def test_an_image_without_progress_and_without_an_error_ends_its_own_descent_alone():
    # In the peers the descent ends for all images together or for none, also while errors come nearer.
    search = begin_search(1.0, torch.zeros(3, 2))
    error = torch.tensor([False, False, True])
    for loss in (5.0, 4.0):
        search = searched(search, error, torch.tensor([5.0, loss, 5.0]), steps=10, abort_early=True)

    assert search.turn.tolist() == [1, 0, 0]


def test_descents_that_are_too_short_to_reach_an_error_go_on_from_one_another():
    # Each began at the image: on black and white digits nine times 100 steps of 0.01 left 13 of 32 without an error.
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0] * 4, [50.0] * 4]))
        model.bias.copy_(torch.tensor([0.0, -10.0]))  # the mean grey has to rise from 0 to 0.05
    method = CW(1, "L2", steps=30, first_weight=1.0, abort_early=False)
    state = last_state(method, model, untargeted(torch.zeros(1, 4), torch.tensor([0])))

    assert state.distance.item() == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_black_and_white_images_are_attacked(value):
    # Their inverse hyperbolic tangent is infinite.
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0] * 4, [1.0 - 2 * value] * 4]))
        model.bias.copy_(torch.tensor([1.0, 2 * value * 2]) if value else torch.tensor([1.0, 0.0]))
    x = torch.full((1, 4), value)
    y = model(x).argmax(1)
    state = last_state(CW(1, "L2", steps=50, searches=4, step_size=0.05), model, untargeted(x, y))

    assert state.distance.isfinite().all()


def test_an_error_has_the_confidence_that_is_asked_for():
    made = linear(3)
    state = last_state(CW(1, "L2", steps=60, searches=3, confidence=0.5), made.model, untargeted(made.x, made.y))
    found = state.distance.isfinite()
    with torch.no_grad():
        margin = losses.margin(made.model(state.nearest), made.y)[found]

    assert len(margin) > 50
    assert (margin >= 0.5).all()


def test_a_target_is_reached_although_other_classes_are_in_front():
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(CW(1, "L2", steps=60, searches=3), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()
