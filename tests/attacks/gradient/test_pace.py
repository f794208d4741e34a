"""Searches of APGD that are given up where they lag."""

from dataclasses import replace

import pytest
import torch
from robustkit.attacks import APGD, SoftAPGD
from robustkit.attacks.gradient._lead import Lead
from torch import nn

import robustkit
from robustkit.primitives.protocol import Seen
from tests.problems import images, trials
from tests.small import cnn


def far() -> nn.Module:
    """Three classes, whose margins of 400 and 800 a search in a ball of 0.1 lowers by 80: to 0.8 and 0.9 of them."""
    net = nn.Linear(800, 3)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0], [0.0], [0.0]]).expand(3, 800))
        net.bias.copy_(torch.tensor([0.0, 0.0, -400.0]))
    return net


@pytest.mark.parametrize(
    ("pace", "steps", "taken"), [(0.5, 20, 5), (0.85, 20, 9), (0.85, 5, 3), (0.5, 4, 2), (0.0, 1, 1), (None, 20, 20)]
)
def test_a_search_is_given_up_after_the_fifth_of_its_steps_that_leaves_too_much_of_the_margin(pace, steps, taken):
    x, y = torch.full((1, 800), 0.5), torch.zeros(1, dtype=torch.long)
    result = robustkit.attack(far(), x, y, SoftAPGD(eps=0.1, steps=steps, pace=pace))

    assert int(result.backwards) == taken


def test_towards_a_class_the_margin_over_that_class_counts():
    x, y = torch.full((1, 800), 0.5), torch.zeros(1, dtype=torch.long)
    result = robustkit.attack(far(), x, y, SoftAPGD(eps=0.1, steps=20, pace=0.85, loss="dlr", targets=2))

    assert int(result.backwards) == 9 + 5


@pytest.mark.parametrize(
    ("setting", "taken"),
    [
        # 5, 5 and 10 steps, or 6, 6 and 8 with the point where each ball ends; then one or two fifths of the last.
        ({"pace": 0.5, "start_radius": 4}, 13), ({"pace": 0.85, "start_radius": 4}, 15),
        ({"pace": 0.0, "norm": "L1", "eps": 80}, 16), ({"pace": 0.5, "norm": "L1", "eps": 80, "start_radius": 1}, 5),
    ],
)  # fmt: skip
def test_a_search_from_a_larger_ball_is_given_up_in_the_last_ball_only(setting, taken):
    x, y = torch.full((1, 800), 0.5), torch.zeros(1, dtype=torch.long)
    result = robustkit.attack(far(), x, y, SoftAPGD(**({"eps": 0.1, "steps": 20} | setting)))

    assert int(result.backwards) == taken


@pytest.mark.parametrize(
    ("margins", "first", "least"), [((1.0, 0.2, 3.0, 4.0), 3.0, 3.0), ((1.0, 0.2, 0.5, 0.4), 1.0, 0.4)]
)
def test_the_margin_where_the_last_ball_begins_counts_if_it_is_larger_than_the_first(margins, first, least):
    state = APGD(eps=0.1).init(trials(torch.zeros(1, 4), torch.zeros(1, dtype=torch.long)))
    lead = Lead.begin(state.best_loss)
    for query, margin in enumerate(margins):
        seen = Seen(state.trial.y, torch.tensor([[margin, 0.0]]), state.best_loss, torch.zeros(1, 4))
        lead = lead.after(replace(state, queries=torch.tensor([query])), seen, last_ball=2)

    assert (float(lead.first), float(lead.least)) == pytest.approx((first, least))


BALLS = pytest.mark.parametrize(
    "ball", [{"eps": 0.02}, {"eps": 0.3, "norm": "L2", "start_radius": 4}, {"eps": 1.0, "norm": "L1"}]
)


@BALLS
def test_a_pace_of_one_gives_up_no_search(ball):
    net, x = cnn().eval(), images(12, 1, 8, 8)
    y = net(x).argmax(1)
    whole, paced = (robustkit.attack(net, x, y, SoftAPGD(**ball, steps=10, pace=pace)) for pace in (None, 1.0))

    assert torch.equal(whole.x_adv, paced.x_adv)
    assert torch.equal(whole.backwards, paced.backwards)


@BALLS
def test_searches_that_are_given_up_have_the_same_bits_in_any_batch(ball):
    net, x = cnn().eval(), images(12, 1, 8, 8)
    y = net(x).argmax(1)
    method = SoftAPGD(**ball, steps=10, pace=0.7, restarts=2)
    one, *others = (robustkit.attack(net, x, y, method, batch_size=size) for size in (64, 1, 7))

    assert len(set(one.backwards.tolist())) > 1
    assert all(torch.equal(one.x_adv, other.x_adv) for other in others)
    assert all(torch.equal(one.backwards, other.backwards) for other in others)
