"""The race of target classes, on linear networks whose margins are known in closed form."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from robustkit.attacks import APGD, RacedAPGD
from torch import Tensor, nn

import robustkit
from robustkit.errors import UserError
from robustkit.primitives.protocol import Seen
from tests.attacks.kinks import dead_end, noted_widths
from tests.problems import images, trials

# Wrong classes in the order of their logits at a grey image.
LIKELIEST, SECOND, THIRD, STEEP = 1, 2, 3, 4


def plane() -> nn.Module:
    """Eight values: at 0.5 the leads of class 0 are 1, 2, 3 and 4; an eps of 0.1 takes 0.08 of them, and 4 of STEEP."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 5))
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([0.0, 0.1, 0.1, 0.1, 5.0]).unsqueeze(1).expand(5, 8))
        net[1].bias.copy_(torch.tensor([0.0, -1.0, -2.0, -3.0, -4.0]) - net[1].weight.sum(1) / 2)
    return net.eval()


def grey(count: int) -> tuple[Tensor, Tensor]:
    return torch.full((count, 8), 0.5), torch.zeros(count, dtype=torch.long)


def followed(attack: RacedAPGD, net: nn.Module, x: Tensor, y: Tensor) -> list[list[int]]:
    """For each query but the first the class that each row's objective aims at: the gradient's column tells it."""
    attack = attack.of(5)
    state, aims = attack.init(trials(x, y)), []
    while not bool(state.done.all()):
        query = state.query.clone().requires_grad_()
        logits = net(query).detach().requires_grad_()
        objective = attack.objective_at(logits, state)
        slope = torch.autograd.grad(objective.sum(), logits)[0]
        aims.append(slope.argmax(1).tolist())
        grad = torch.autograd.grad((net(query) * slope).sum(), query)[0]
        state = attack.step(state, Seen(logits.argmax(1), logits.detach(), objective.detach(), grad))
    return aims[1:]


def test_each_round_follows_the_nearer_half_for_twice_as_long():
    # At this radius the leads end at .992, 1.992, 2.992 and 3.6.
    aims = followed(RacedAPGD(eps=0.01, rivals=4, short=2, steps=5), plane(), *grey(2))

    first = [*[LIKELIEST] * 2, *[SECOND] * 2, *[THIRD] * 2, *[STEEP] * 2]
    assert aims == [[each] * 2 for each in [*first, *[LIKELIEST] * 4, *[SECOND] * 4, *[LIKELIEST] * 5]]


def test_the_long_search_follows_a_class_that_only_the_race_shows_as_near():
    # The leads end at .928, 1.928, 2.928 and .4: no class is reached, and the steep one is the nearest.
    aims = followed(RacedAPGD(eps=0.09, rivals=4, short=3, steps=4), plane(), *grey(2))

    assert aims[12:] == [[STEEP] * 2] * 6 + [[LIKELIEST] * 2] * 6 + [[STEEP] * 2] * 4


def test_it_breaks_exactly_what_a_linear_network_lets_it_break():
    broken = [bool(robustkit.attack(plane(), *grey(1), RacedAPGD(eps=eps)).success) for eps in (0.0999, 0.1001)]

    assert broken == [False, True]


def test_the_number_of_queries_is_that_of_all_searches_and_no_more_classes_than_there_are():
    few = robustkit.attack(plane(), *grey(1), RacedAPGD(eps=0.01, rivals=2, short=4, steps=7))
    many = robustkit.attack(plane(), *grey(1), RacedAPGD(eps=0.01, rivals=9, short=4, steps=7))

    assert (int(few.backwards), int(many.backwards)) == (2 * 4 + 7, 4 * 4 + 2 * 8 + 7)


def test_towards_a_target_every_search_aims_at_it():
    x, y = grey(2)
    attack = RacedAPGD(eps=0.1, targets=2, rivals=2, short=2, steps=3).of(5)
    aimed = replace(trials(x, y), loss_target=torch.tensor([SECOND, STEEP]))

    state = attack.init(aimed)
    rivals = attack.step(state, Seen(y, plane()(x).detach(), torch.zeros(2), torch.ones_like(x))).rivals

    assert rivals.classes.tolist() == [[SECOND, SECOND], [STEEP, STEEP]]


def queried(attack: RacedAPGD, x: Tensor, losses: list[float], restart: int = 0) -> list[Tensor]:
    """The queries of an attack whose objectives are the given ones; the image's is -1 towards each class."""
    attack, y = attack.of(5), torch.zeros(len(x), dtype=torch.long)
    begun = trials(x, y)
    state = attack.init(replace(begun, key=begun.key + restart, restart=begun.restart + restart))
    logits = torch.tensor([[1.0, 0, 0, 0, 0]]).expand(len(x), 5)
    points = []
    for loss in [-1.0, *losses]:
        points.append(state.query)
        state = attack.step(state, Seen(y, logits, torch.full((len(x),), loss), torch.ones_like(x)))
    return [*points, state.query]


def test_the_image_is_queried_first_and_each_search_begins_at_another_random_point():
    x = images(2, 1, 4, 4)
    race = RacedAPGD(eps=0.1, rivals=4, short=1, steps=1)

    once, again = (queried(race, x, [-0.5] * 3, restart) for restart in range(2))

    assert torch.equal(once[0], x)
    starts = [*once[1:], *again[1:]]
    assert not any(torch.equal(one, other) for one, other in pairwise([x, *starts]))


def test_a_round_begins_at_the_best_points_of_the_last_one():
    x, _ = grey(1)

    points = queried(RacedAPGD(eps=0.01, rivals=4, short=1, steps=2), x, [-0.9, -0.3, -0.8, -0.5, -0.2, -0.4, -0.4])

    second_and_last = points[2], points[4]
    assert torch.equal(points[5], second_and_last[0])
    assert torch.equal(points[7], second_and_last[1])


@pytest.mark.parametrize(
    ("pace", "queries"),
    [
        (0.41, 8), (0.57, 8), (0.58, 8 + 8), (0.75, 8 + 8), (0.76, 8 + 8 + 4), (0.85, 8 + 8 + 6), (0.9, 8 + 8 + 9),
        (None, 8 + 8 + 9),
    ],
)  # fmt: skip
def test_the_race_ends_where_a_round_or_a_fifth_of_the_long_search_leaves_too_much_of_the_lead(pace, queries):
    # The steep class keeps 1 - 5 * 8 * .043 / 4 = .57 = .755 ** 2 of its lead in every round; the others are far away.
    net = plane()
    with torch.no_grad():
        net[1].bias[1:4] -= 9

    attack = RacedAPGD(eps=0.043, rivals=4, short=2, steps=9, pace=pace)

    assert int(robustkit.attack(net, *grey(1), attack).backwards) == queries


def test_without_a_pace_an_image_stays_where_nothing_was_gained():
    # One query for each class, at a random point: some images are nearer to their classes than that.
    x, y = grey(20)

    attacked = robustkit.attack(plane(), x, y, RacedAPGD(eps=0.01, rivals=4, short=1, steps=3))

    assert attacked.backwards.tolist() == [4 + 4 + 3] * 20


def test_gradients_see_past_kinks_and_sharpen_from_round_to_round(monkeypatch):
    seen = noted_widths(monkeypatch, "raced_apgd")
    attack = RacedAPGD(eps=0.01, rivals=4, short=2, steps=2, widest=0.16, narrowest=0.01, pooling=0.5)
    robustkit.attack(plane(), *grey(1), attack)

    assert sorted({round(width, 6) for width, _ in seen}, reverse=True) == [0.16, 0.04, 0.01]
    assert all(abs(pooling - width / 2) < 1e-7 for width, pooling in seen)


@pytest.mark.filterwarnings("ignore:.*exactly zero")
def test_it_leaves_a_flat_region_that_apgd_does_not():
    x, y = torch.full((4, 8), 0.3), torch.zeros(4, dtype=torch.long)

    plain = robustkit.attack(dead_end(), x, y, APGD(eps=0.4, steps=20))
    raced = robustkit.attack(dead_end(), x, y, RacedAPGD(eps=0.4, steps=20, widest=0.5))

    assert not plain.success.any()
    assert raced.success.all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"rivals": 0}, {"short": 0}, {"steps": 0}, {"rivals": 10**9}, {"rho": -1.0}, {"pace": -0.1}, {"widest": 0.0},
        {"narrowest": 0.0}, {"pooling": 0.0},
    ],
)  # fmt: skip
def test_budgets_that_make_no_race_are_refused(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        RacedAPGD(eps=0.1, **wrong)


def test_a_race_that_would_take_more_steps_than_any_attack_is_refused_before_its_timetable_is_made():
    with pytest.raises(UserError, match="the steps of all searches together must be at most 1,000,000"):
        RacedAPGD(eps=0.1, rivals=50_000, short=1_000_000)


def test_in_l1_it_is_refused():
    with pytest.raises(UserError, match="RacedAPGD has no L1 form"):
        RacedAPGD(eps=1.0, norm="L1")
