import pytest
import torch
from robustkit.attacks import FrankWolfe

from robustkit import UserError, attack
from robustkit.primitives.ball import unit
from robustkit.primitives.reach import reach
from tests.attacks.linear import linear
from tests.problems import images, seen, trials

EPS = {"Linf": 0.3, "L2": 1.0, "L1": 2.5}  # such that the box cuts the ball off


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_on_a_linear_function_one_step_gains_all_that_can_be_gained(norm):
    x, slope = images(5, 12), images(5, 12, seed=1) - 0.5
    method = FrankWolfe(EPS[norm], norm)
    after = method.step(method.init(trials(x)), seen([0.0] * 5, slope))

    gained = ((after.query - x) * slope).sum(1)
    largest = [reach(method.ball, *row)[0].item() for row in zip(x, x, slope.unsqueeze(1), strict=True)]
    assert gained.tolist() == pytest.approx(largest, rel=1e-5)


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
@pytest.mark.parametrize("momentum", [0, 0.5, 0.99])
def test_without_a_projection_every_query_lies_in_ball_and_box(norm, momentum):
    x = images(20, 12).round(decimals=1)  # some values at the walls
    method = FrankWolfe(EPS[norm], norm, steps=30, momentum=momentum)
    state = method.init(trials(x))
    for turn in range(30):
        assert not state.done.any()
        assert method.ball.contains(x, state.query).all()
        state = method.step(state, seen([0.0] * 20, images(20, 12, seed=turn) - 0.5))

    assert state.done.all()
    assert method.ball.contains(x, state.query).all()


def test_after_k_others_a_step_goes_two_of_k_plus_two_parts_of_the_way():
    x = torch.full((1, 3), 0.5)
    method = FrankWolfe(0.1, momentum=0, random_start=False)
    state, left = method.init(trials(x)), []
    for sign in (1, -1, 1, -1):
        end, before = 0.5 + 0.1 * sign, state.query
        state = method.step(state, seen([0.0], torch.full((1, 3), 100.0 * sign)))
        left.append(((end - state.query) / (end - before))[0, 0].item())

    assert left == pytest.approx([0, 1 - 2 / 3, 1 - 2 / 4, 1 - 2 / 5], abs=1e-5)


def test_gradients_have_length_one_before_they_are_averaged():
    method, slopes = FrankWolfe(0.1, momentum=0.25), [images(2, 6, seed=turn) - 0.5 for turn in range(3)]
    state = method.init(trials(images(2, 6)))
    for turn, slope in enumerate(slopes):
        state = method.step(state, seen([0.0, 0.0], 10.0**turn * slope))

    first, second, third = map(unit, slopes)
    expected = 0.25 * (0.25 * first + 0.75 * second) + 0.75 * third
    torch.testing.assert_close(state.average, expected)


def test_a_step_goes_where_the_average_predicts_most_and_not_the_last_gradient():
    x = torch.full((1, 2), 0.5)
    method = FrankWolfe(0.1, momentum=0.75)
    state = method.step(method.init(trials(x)), seen([0.0], torch.tensor([[1.0, 0.2]])))
    state = method.step(state, seen([0.0], torch.tensor([[-1.0, 0.2]])))

    assert state.average[0, 0] > 0
    assert state.query[0].tolist() == pytest.approx([0.6, 0.6])


def test_the_best_point_is_kept_and_restarts_begin_elsewhere():
    x = images(1, 8).repeat(2, 1)
    method = FrankWolfe(1.0, "L1", steps=5)
    state = method.init(trials(x))
    assert not torch.equal(state.query[0], state.query[1])

    best = state.query
    for loss in (-3.0, -5.0, -4.0):  # of a margin, below zero until the image is broken
        state = method.step(state, seen([loss] * 2, images(2, 8, seed=3) - 0.5))
    assert torch.equal(state.best, best)
    assert state.best_loss.tolist() == [-3.0, -3.0]


def test_l1_starts_move_few_values_all_the_way():
    x = torch.full((10, 50), 0.5)
    start = FrankWolfe(2.0, "L1").init(trials(x)).query

    assert ((start != x).sum(1) == 4).all()
    assert set(start.unique().tolist()) == {0.0, 0.5, 1.0}


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_two_steps_break_what_can_be_broken_on_a_linear_network(norm):
    problem = linear(classes=2)
    for factor, broken in ((1.01, True), (0.99, False)):
        for row in range(6):
            eps = factor * problem.distance[norm][row].item()
            result = attack(problem.model, problem.x[[row]], problem.y[[row]], FrankWolfe(eps, norm, steps=2))
            assert bool(result.success) is broken


@pytest.mark.parametrize(
    ("norm", "eps"), [("Linf", 1e-6), ("Linf", 1), ("L2", 0.5), ("L2", 5), ("L1", 0.5), ("L1", 1000)]
)
def test_without_a_gradient_every_query_is_finite(norm, eps):
    x = images(3, 2, 4, 4)
    method = FrankWolfe(eps, norm, steps=3)
    state = method.init(trials(x))
    one = torch.zeros_like(x)
    one[:, 0, 0, 0] = 1
    for slope in (one, 0 * one, -one):
        state = method.step(state, seen([0.0] * 3, slope))
        assert method.ball.contains(x, state.query).all()


@pytest.mark.parametrize("momentum", [1, 1.5, -0.1])
def test_a_momentum_with_which_nothing_new_is_asked_is_refused(momentum):
    with pytest.raises(UserError, match="momentum"):
        FrankWolfe(0.1, momentum=momentum)
