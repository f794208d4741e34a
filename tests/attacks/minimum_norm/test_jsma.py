import pytest
import torch
from robustkit.attacks import JSMA
from robustkit.attacks.minimum_norm._saliency import Gains, best_pair

from robustkit import UserError
from robustkit.classifier.answers import answered
from tests.attacks.driving import last_state, towards, untargeted
from tests.attacks.linear import sparse_linear


def mirrored():
    """A classifier whose two logits are each other's negative: the most salient value gains most."""
    made = sparse_linear(2, count=20)
    with torch.no_grad():
        for weights in made.model[0].parameters():
            weights.sub_(weights.mean(0))
    return made


def test_of_a_linear_classifier_with_two_classes_as_few_values_as_possible_are_changed():
    made = mirrored()
    state = last_state(JSMA("minimum", "L0", steps=10, pairs=False), made.model, untargeted(made.x, made.y))

    assert torch.equal(state.distance, made.fewest)


def test_a_pair_changes_at_most_one_value_too_many():
    made = mirrored()
    state = last_state(JSMA("minimum", "L0", steps=10), made.model, untargeted(made.x, made.y))

    assert ((state.distance - made.fewest) <= made.fewest % 2).all()
    assert (state.distance >= made.fewest).all()


@pytest.mark.parametrize("shape", [(1, 2), (4, 6), (3, 40)])
def test_the_best_pair_is_that_of_all_pairs(shape):
    rows, size = shape
    source = torch.Generator().manual_seed(0)
    towards, others = torch.randn(2, rows, size, generator=source)
    possible = torch.rand(rows, size, generator=source) < 0.9
    score = best_pair(Gains(towards, others, possible))[1]

    for row in range(rows):
        best = 0.0
        for i in range(size):
            for j in range(size):
                a, b = towards[row, i] + towards[row, j], others[row, i] + others[row, j]
                if i % (size // 2) != j % (size // 2) and possible[row, i] and possible[row, j] and a > 0 and b > 0:
                    best = max(best, float(a * b))
        assert float(score[row]) == best


@pytest.mark.parametrize(("direction", "sign"), [("up", 1), ("down", -1)])
def test_values_go_in_the_direction_that_is_asked_for_by_steps_of_theta(direction, sign):
    made = sparse_linear(3, count=5)
    method = JSMA("minimum", "L0", steps=4, step_size=0.25, direction=direction)
    state = method.init(untargeted(made.x, made.y))
    change = method.step(state, answered(method, state, made.model)).query - made.x

    assert ((change != 0).sum(1) == 2).all()
    assert (change * sign >= 0).all()
    assert change.abs().max() <= 0.25 + 1e-6


def test_a_target_is_reached():
    made = sparse_linear(5, count=8)
    target = (made.y + 1) % 5
    state = last_state(JSMA("minimum", "L0", steps=40), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).float().mean() > 0.8


def test_an_unknown_direction_is_refused():
    with pytest.raises(UserError, match="direction"):
        JSMA(1, "L0", direction="sideways")
