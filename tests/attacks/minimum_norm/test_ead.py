import pytest
import torch
from robustkit.attacks import EAD

from robustkit.errors import UserError
from tests.attacks.driving import last_state, towards, untargeted
from tests.attacks.linear import linear


def test_few_values_change_of_which_the_error_gains_most():
    made = linear(2, count=20)
    state = last_state(EAD(1, "L1", steps=60), made.model, untargeted(made.x, made.y))
    slope = (made.model[0].weight[0] - made.model[0].weight[1]).abs()
    changed = (state.nearest != made.x).sum(0)

    assert changed[slope.argmax()] == (state.distance.isfinite()).sum()
    assert changed[slope < slope.median()].sum() == 0


def test_the_rules_choose_by_their_own_distance():
    made = linear(3)
    found = {
        rule: last_state(EAD(1, "L1", steps=50, searches=5, rule=rule), made.model, untargeted(made.x, made.y))
        for rule in ("L1", "EN")
    }
    net = {rule: 0.01 * state.distance + (state.nearest - made.x).square().sum(1) for rule, state in found.items()}
    both = found["L1"].distance.isfinite()

    assert (found["L1"].distance <= found["EN"].distance)[both].all()
    assert (net["EN"] <= net["L1"] + 1e-7)[both].all()


def test_an_unknown_rule_is_refused():
    with pytest.raises(UserError, match="rule"):
        EAD(1, "L1", rule="L2")


def test_a_target_is_reached_although_other_classes_are_in_front():
    made = linear(5)
    target = (made.y + 1) % 5
    state = last_state(EAD(1, "L1", steps=60, searches=6), made.model, towards(made.x, made.y, target))

    with torch.no_grad():
        assert (made.model(state.query).argmax(1) == target).all()
