"""The race of target classes, on linear networks whose margins are known in closed form."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from robustkit.attacks import RacedAPGD
from torch import Tensor, nn

import robustkit
from robustkit.errors import UserError
from robustkit.primitives.protocol import Seen
from tests.problems import images, trials

# Of class 0 and three wrong ones, in the order of their logits at a grey image; only the last one can be reached.
NEAR_BUT_FLAT, FLAT, STEEP = 1, 2, 3


def plane() -> nn.Module:
    """Eight values near 0.5: the leads of class 0 are 1, 2 and 3, and an eps of 0.1 takes 0.08, 0.08 and 4 away."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 4))
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([0.0, 0.1, 0.1, 5.0]).unsqueeze(1).expand(4, 8))
        net[1].bias.copy_(torch.tensor([0.0, -1.0, -2.0, -3.0]) - net[1].weight.sum(1) / 2)
    return net.eval()


def followed(attack: RacedAPGD, net: nn.Module, x: Tensor, y: Tensor) -> list[list[int]]:
    """For each query the class that each row's objective aims at: the gradient's column tells it."""
    attack = attack.of(4)
    state, aims = attack.init(trials(x, y)), []
    while not bool(state.done.all()):
        query = state.query.clone().requires_grad_()
        logits = net(query).detach().requires_grad_()
        objective = attack.objective_at(logits, state)
        slope = torch.autograd.grad(objective.sum(), logits)[0]
        aims.append(slope.argmax(1).tolist())
        grad = torch.autograd.grad((net(query) * slope).sum(), query)[0]
        state = attack.step(state, Seen(logits.argmax(1), logits.detach(), objective.detach(), grad))
    return aims


def test_each_class_is_tried_shortly_and_the_nearest_one_followed_for_long():
    x, y = torch.full((2, 8), 0.5), torch.zeros(2, dtype=torch.long)

    aims = followed(RacedAPGD(eps=0.01, rivals=3, short=2, steps=5), plane(), x, y)

    # At this radius the leads end at .992, 1.992 and 2.6: the likeliest class stays the nearest.
    order = [*[NEAR_BUT_FLAT] * 2, *[FLAT] * 2, *[STEEP] * 2, *[NEAR_BUT_FLAT] * 5]
    assert aims == [[each] * 2 for each in order]


def test_the_long_search_follows_a_class_that_only_the_race_shows_as_near():
    x, y = torch.full((2, 8), 0.5), torch.zeros(2, dtype=torch.long)

    aims = followed(RacedAPGD(eps=0.07, rivals=3, short=3, steps=4), plane(), x, y)

    # The leads end at .944, 1.944 and .2: no class is reached, and the steep one is the nearest.
    assert aims[9:] == [[STEEP] * 2] * 4


def test_it_breaks_exactly_what_a_linear_network_lets_it_break():
    x, y = torch.full((1, 8), 0.5), torch.zeros(1, dtype=torch.long)

    broken = [bool(robustkit.attack(plane(), x, y, RacedAPGD(eps=eps)).success) for eps in (0.0749, 0.0751)]

    assert broken == [False, True]


def test_the_number_of_queries_is_that_of_all_searches_and_no_more_classes_than_there_are():
    x, y = torch.full((1, 8), 0.5), torch.zeros(1, dtype=torch.long)

    few = robustkit.attack(plane(), x, y, RacedAPGD(eps=0.01, rivals=2, short=4, steps=7))
    many = robustkit.attack(plane(), x, y, RacedAPGD(eps=0.01, rivals=9, short=4, steps=7))

    assert (int(few.backwards), int(many.backwards)) == (2 * 4 + 7, 3 * 4 + 7)


def test_towards_a_target_every_search_aims_at_it():
    x, y = torch.full((2, 8), 0.5), torch.zeros(2, dtype=torch.long)
    attack = RacedAPGD(eps=0.1, targets=2, rivals=2, short=2, steps=3).of(4)
    aimed = replace(trials(x, y), loss_target=torch.tensor([FLAT, STEEP]))

    state = attack.init(aimed)
    rivals = attack.step(state, Seen(y, plane()(x).detach(), torch.zeros(2), torch.ones_like(x))).rivals

    assert rivals.tolist() == [[FLAT, FLAT], [STEEP, STEEP]]


def test_the_first_search_begins_at_the_image_and_the_others_at_random():
    x, y = images(2, 1, 4, 4), torch.zeros(2, dtype=torch.long)
    attack = RacedAPGD(eps=0.1, rivals=3, short=1, steps=1).of(4)
    state = attack.init(trials(x, y))
    starts = []
    for _ in range(3):
        starts.append(state.query)
        state = attack.step(state, Seen(y, torch.zeros(2, 4), torch.zeros(2), torch.zeros_like(x)))

    assert torch.equal(starts[0], x)
    assert not any(torch.equal(one, other) for one, other in pairwise(starts))


def test_the_long_search_begins_where_the_best_short_one_was():
    x, y = torch.full((1, 8), 0.5), torch.zeros(1, dtype=torch.long)
    attack = RacedAPGD(eps=0.01, rivals=3, short=1, steps=2).of(4)
    state = attack.init(trials(x, y))
    queried = []
    for loss in (-3.0, -1.0, -2.0):
        queried.append(state.query)
        state = attack.step(state, Seen(y, torch.tensor([[4.0, 3, 2, 1]]), torch.tensor([loss]), torch.ones_like(x)))

    assert torch.equal(state.query, queried[1])
    assert state.ahead.tolist() == [FLAT]


@pytest.mark.parametrize(("below", "queries"), [(0.6, 3 * 2 + 9), (0.5, 3 * 2)])
def test_the_long_search_follows_only_where_a_short_one_came_near(below, queries):
    x, y = torch.full((1, 8), 0.5), torch.zeros(1, dtype=torch.long)
    # The lead over the likeliest class is 1; at this radius .56 of it is left towards the steep one (3 - 5 * 8 * .061).
    attack = RacedAPGD(eps=0.061, rivals=3, short=2, steps=9, long_below=below)

    assert int(robustkit.attack(plane(), x, y, attack).backwards) == queries


@pytest.mark.parametrize(
    "wrong", [{"rivals": 0}, {"short": 0}, {"steps": 0}, {"rivals": 10**9}, {"rho": -1.0}, {"long_below": -0.1}]
)
def test_budgets_that_make_no_race_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        RacedAPGD(eps=0.1, **wrong)


def test_in_l1_it_is_refused():
    with pytest.raises(UserError, match="RacedAPGD has no L1 form"):
        RacedAPGD(eps=1.0, norm="L1")
