import pytest
import torch
from robustkit.attacks import ACG

from robustkit.errors import UserError
from tests.problems import images, seen, trials

X = torch.full((1, 2), 0.5)
FIRST, SECOND = torch.tensor([[2.0, 1.0]]), torch.tensor([[1.0, -1.0]])


@pytest.mark.parametrize(("variant", "expected"), [("paper", [1.5, -0.75]), ("reference", [0.5, -1.25])])
def test_the_second_direction_is_the_formula(variant, expected):
    # The gradient falls by (1, 2): beta is -(1 - 2) / (2 + 2) = 1 / 4.
    method = ACG(0.1, steps=100, variant=variant)
    state = method.step(method.init(trials(X)), seen([0.0], FIRST))
    assert state.direction.tolist() == FIRST.tolist()

    state = method.step(state, seen([1.0], SECOND))
    assert state.direction.tolist() == [expected]


def test_a_direction_is_orthogonal_to_the_change_of_the_gradient():
    method = ACG(0.1, steps=100)
    state = method.init(trials(images(6, 30)))
    before = torch.zeros(6, 30)
    for turn in range(10):
        grad = images(6, 30, seed=turn) - 0.5
        state = method.step(state, seen([float(turn)] * 6, grad))
        if turn:
            assert ((state.direction * (grad - before)).sum(1).abs() < 1e-3 * state.direction.norm(dim=1)).all()
        before = grad


def test_a_step_follows_the_signs_of_the_direction():
    method = ACG(0.1, steps=100)
    state = method.init(trials(X))
    for turn, grad in enumerate((FIRST, SECOND)):
        state = method.step(state, seen([float(turn)], grad))

    assert torch.allclose(state.query, torch.tensor([[0.6, 0.4]]))


def test_a_gradient_that_stays_the_same_is_followed():
    # The authors' code divides zero by zero here and goes on with the sign of NaN.
    method = ACG(0.1, steps=10)
    state = method.init(trials(X))
    for _ in range(3):
        state = method.step(state, seen([0.0], FIRST))

    assert state.direction.tolist() == FIRST.tolist()


def test_tiny_gradients_have_the_directions_of_large_ones():
    method = ACG(0.1, steps=100)
    for factor in (1.0, 1e-28):
        state = method.init(trials(X))
        for grad in (FIRST, SECOND):
            state = method.step(state, seen([0.0], factor * grad))

        assert torch.allclose(state.direction / factor, torch.tensor([[1.5, -0.75]]))


def test_after_a_halving_the_best_iterates_own_gradients_are_used():
    # With 10 steps the first checkpoint comes after two; the best iterate is the second query.
    method = ACG(0.1, steps=10)
    state = method.init(trials(X))
    for loss, grad in ((0.0, FIRST), (5.0, SECOND), (1.0, torch.tensor([[7.0, 3.0]]))):
        state = method.step(state, seen([loss], grad))

    assert state.step_size.item() == pytest.approx(0.1)
    assert state.direction.tolist() == [[1.5, -0.75]]
    assert torch.allclose(state.best, torch.tensor([[0.6, 0.6]]))
    assert torch.allclose(state.query, torch.tensor([[0.6, 0.5]]))  # from there, projected


def test_it_begins_in_the_middle_of_what_ball_and_box_share_and_restarts_at_random():
    x = torch.tensor([[0.0, 0.5, 1.0]]).repeat(2, 1)
    made = trials(x)
    start = ACG(0.2).init(type(made)(**{**vars(made), "restart": torch.tensor([0, 1])})).query

    assert torch.allclose(start[0], torch.tensor([0.1, 0.5, 0.9]))
    assert not torch.allclose(start[1], start[0])


def test_an_unknown_variant_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"no variant of ACG called 'code'.*paper.*reference"):
        ACG(0.1, variant="code")
