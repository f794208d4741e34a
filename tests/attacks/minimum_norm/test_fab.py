import pytest
import torch
from robustkit.attacks import FAB
from torch import nn

from robustkit import attack
from tests.attacks.driving import last_state, untargeted
from tests.attacks.linear import linear

NORMS = ["Linf", "L2", "L1"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_the_nearest_error_of_a_linear_classifier_is_found(norm, classes):
    made = linear(classes, count=20)
    # The radius does not matter: the nearest error is looked for, inside of the ball or not.
    state = last_state(FAB(0.01, norm, steps=40, classes=classes - 1), made.model, untargeted(made.x, made.y))

    # One image is 6e-5 away from an error: there, the rounding of fp32 logits counts.
    assert torch.allclose(state.distance, made.distance[norm].double(), rtol=0.01, atol=1e-6)
    with torch.no_grad():
        assert (made.model(state.nearest).argmax(1) != made.y).all()


@pytest.mark.parametrize("norm", NORMS)
def test_exactly_the_images_nearer_than_eps_break_with_one_trial_per_class(norm):
    made = linear(5, count=30)
    eps = made.distance[norm].quantile(0.5).item()
    clear = (made.distance[norm] / eps - 1).abs() > 0.02
    result = attack(made.model, made.x, made.y, FAB(eps, norm, steps=30, targets=4))

    assert torch.equal(result.success[clear], (made.distance[norm] < eps)[clear])


def test_classes_beyond_the_likeliest_are_not_linearised():
    # Of three wrong classes the likeliest is far and the second near: their gradients differ in length.
    model = nn.Linear(1, 4, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0], [-0.1], [-20.0], [-30.0]]))
    x, y = torch.tensor([[0.5]]), torch.tensor([0])
    one, two = (FAB(0.9, steps=3, classes=count).objectives(model(x), untargeted(x, y)) for count in (1, 9))

    assert (one.shape, two.shape) == ((1, 1), (1, 3))
    assert torch.allclose(two, torch.tensor([[-0.05, -10.0, -15.0]]))


def test_an_untargeted_trial_takes_a_gradient_of_each_class_only_where_a_step_begins():
    made = linear(5)
    many, one = (attack(made.model, made.x[:4], made.y[:4], FAB(1e-6, steps=3, **more))
                 for more in ({}, {"targets": 1}))  # fmt: skip

    assert one.backwards.tolist() == [6] * 4  # at every query
    # At the image, at the first error and behind two errors; none at the second error and at the end.
    assert many.backwards.tolist() == [4 * 4] * 4
    assert torch.equal(many.forwards, one.forwards)


def test_only_later_restarts_begin_away_from_the_image():
    made = linear(3)
    for norm in NORMS:
        method = FAB(0.2, norm)
        first, second = (method.init(untargeted(made.x, made.y, restart)).query for restart in (0, 1))

        assert torch.equal(first, made.x)
        assert torch.allclose(method.ball.distance(made.x, second), torch.tensor(0.1).double(), rtol=1e-3)
