import torch
from robustkit.attacks import SigmaZero

from robustkit.primitives.registry import build
from tests.attacks.driving import last_state, towards, untargeted
from tests.attacks.linear import linear, sparse_linear


def test_the_fewest_values_of_a_linear_classifier_are_changed():
    made = sparse_linear(2)
    state = last_state(SigmaZero(1, "L0", steps=300), made.model, untargeted(made.x, made.y))

    assert (state.distance >= made.fewest).all()
    assert (state.distance == made.fewest).double().mean() > 0.9


def test_a_shift_of_the_logits_changes_nothing():
    made = sparse_linear(3)
    plain = last_state(SigmaZero(1, "L0", steps=50), made.model, untargeted(made.x, made.y))
    with torch.no_grad():
        made.model[0].bias += 4
    shifted = last_state(SigmaZero(1, "L0", steps=50), made.model, untargeted(made.x, made.y))

    # A change that is as large as the threshold may fall on either side of it.
    assert (plain.distance == shifted.distance).double().mean() > 0.9


def test_a_target_is_reached_although_other_classes_are_in_front():
    # adv-lib returns the image itself where a target is given.
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(SigmaZero(1, "L0", steps=100), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()


def test_both_spellings_of_the_name_build_it():
    assert build("sigma-zero:steps=5", "L0", 3) == build("sigma_zero:steps=5", "L0", 3)
