import pytest
import torch
from robustkit.attacks import NIFGSM

from robustkit import attack
from tests.problems import images, problem, seen, trials


def test_the_gradient_is_taken_where_the_velocity_leads():
    method = NIFGSM(0.5, steps=5, decay=0.5)
    state = method.init(trials(torch.full((1, 2), 0.5)))
    state = method.step(state, seen([0.0], torch.tensor([[3.0, -1.0]])))

    assert torch.allclose(state.point, torch.tensor([[0.6, 0.4]]))
    assert torch.allclose(state.query, torch.tensor([[0.6 + 0.1 * 0.5 * 1.5, 0.4 - 0.1 * 0.5 * 0.5]]))


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_the_look_ahead_is_as_long_as_the_steps_that_the_velocity_stands_for(norm):
    # In L2 it led 6 to 108 eps away. Equal gradients of mean absolute value 1 add up: n of them stand for n steps.
    x, grad = 0.4 + images(4, 3, 32, 32) / 5, images(4, 3, 32, 32, seed=1) - 0.5
    method = NIFGSM(1.0 if norm == "L2" else 0.1, norm, steps=5)
    state = method.init(trials(x))
    for turn in range(1, 5):
        state = method.step(state, seen([0.0] * 4, grad))
        ahead = (state.query - state.point).flatten(1)
        length = ahead.norm(dim=1) if norm == "L2" else ahead.abs().mean(1)
        assert length.tolist() == pytest.approx([turn * method.ball.eps / 5] * 4, rel=1e-4)


def test_the_iterate_itself_is_judged_at_the_end():
    method = NIFGSM(0.5, steps=2)
    state = method.init(trials(torch.full((1, 2), 0.5)))
    for _ in range(2):
        assert not state.done
        state = method.step(state, seen([0.0], torch.tensor([[3.0, -1.0]])))

    assert state.done
    assert torch.equal(state.query, state.point)


def test_a_look_ahead_outside_of_the_ball_counts_for_nothing():
    made = problem("mlp", 1, 8, 8)
    method = NIFGSM(0.02, steps=3, decay=50.0)
    result = attack(made.model, made.x, made.y, method)

    assert (method.ball.distance(made.x, result.x_adv) <= 0.02).all()
    assert torch.equal(made.model(result.x_adv).argmax(1) != made.y, result.success)
