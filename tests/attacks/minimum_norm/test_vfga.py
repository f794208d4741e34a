import torch
from robustkit.attacks import VFGA

from tests.attacks.driving import last_state, untargeted
from tests.attacks.linear import sparse_linear


def test_few_more_values_than_necessary_of_a_linear_classifier_are_changed():
    made = sparse_linear(2, count=6)
    state = last_state(VFGA(1, "L0", steps=10, samples=4), made.model, untargeted(made.x, made.y))

    assert (state.distance >= made.fewest).all()
    assert (state.distance <= made.fewest + 2).all()


def test_each_turn_changes_one_more_value_and_an_error_ends_the_trial():
    made = sparse_linear(2, count=6)
    method = VFGA(1, "L0", steps=20, samples=2)
    state = last_state(method, made.model, untargeted(made.x, made.y))

    assert torch.equal(state.queries, (1 + 4) * state.distance.long())
