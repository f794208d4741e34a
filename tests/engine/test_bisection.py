"""Attacks that need a radius find the nearest error by bisection."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from robustkit.attacks import PGD, Square

from robustkit import attack
from robustkit.engine.bisection import Bisection, grid, precision
from robustkit.errors import UserError
from robustkit.primitives.ball import NORMS
from robustkit.primitives.protocol import HookedAttack
from robustkit.primitives.registry import classes
from robustkit.primitives.threat import ball
from robustkit.testing.problems import EPS, problem
from robustkit.testing.subject import AttackUnderTest
from tests.attacks.linear import linear, sparse_linear


def searched(distance: float, rounds: int, norm: str = "L2") -> tuple[float, int]:
    """The smallest radius at which an attack that never fails without reason succeeds, and how many were tried."""
    search, best, tried = Bisection.of(PGD("minimum", norm, radii=rounds), 100), math.inf, 0
    while not search.over:
        tried += 1
        if search.radius >= distance:
            best, search = min(best, search.radius), search.found(search.radius)
        else:
            search = search.failed()
    return best, tried


@pytest.mark.parametrize("distance", [0.0005, 0.03, 0.5, 1.0, 9.0])
@pytest.mark.parametrize("rounds", [1, 6, 10])
def test_the_radius_is_the_next_one_of_the_grid(distance, rounds):
    best, tried = searched(distance, rounds)

    assert tried <= rounds
    assert best == min((radius for radius in grid("L2", 100, rounds) if radius >= distance), default=math.inf)


def test_neighbouring_radii_have_one_ratio():
    radii = grid("Linf", 100, 10)

    assert len(radii) == 1023
    assert all(after / before == pytest.approx(1 + precision(10)) for before, after in pairwise(radii))


def test_in_l0_every_radius_is_another_whole_number():
    radii = grid("L0", 3072, 10)

    assert len(set(radii)) == len(radii)
    assert all(radius == int(radius) >= 1 for radius in radii)
    assert searched(7, 10, "L0")[0] == 7


@pytest.mark.parametrize("values", [1, 64])
def test_in_l0_there_is_a_radius_however_few_are_tried(values):
    # An empty grid ended in an IndexError.
    assert grid("L0", values, 1) == (1.0,)


def test_an_error_nearer_than_the_radius_saves_radii():
    search = Bisection.of(PGD("minimum", "L2"), 100)
    nearer = search.found(search.radius / 8)

    assert nearer.radius < search.found(search.radius).radius


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_on_a_linear_model_pgd_comes_as_near_as_the_closed_form_and_the_grid_allow(norm):
    made = linear(5)
    method = PGD("minimum", norm, steps=3, targets=4, random_start=False, loss="margin")
    result = attack(made.model, made.x[:8], made.y[:8], method)
    distance, closed = ball(norm, 0).distance(made.x[:8], result.x_adv), made.distance[norm][:8].double()

    assert result.success.all()
    assert (distance >= closed * (1 - 1e-6)).all()
    assert (distance <= closed * (1 + precision(10) + 1e-3)).all()
    with torch.no_grad():
        assert (made.model(result.x_adv).argmax(1) != made.y[:8]).all()


def test_in_l0_a_sparse_error_of_a_linear_model_is_found():
    made = sparse_linear(2)
    result = attack(made.model, made.x[:6], made.y[:6], "pgd:steps=9,radii=5", norm="L0", eps="minimum")
    changed = ball("L0", 0).distance(made.x[:6], result.x_adv)

    assert result.success.all()
    assert (changed >= made.fewest[:6]).all()
    assert (changed < 40).all()


@pytest.mark.parametrize(
    "method",
    ["pgd:steps=2,restarts=2,radii=3", "square:queries=4,radii=3",
     pytest.param("apgd:steps=5,targets=2,radii=3", marks=pytest.mark.slow)],
)  # fmt: skip
def test_batch_size_and_order_do_not_change_a_bit(method):
    made = problem("cnn", 1, 8, 8, count=4)
    whole = attack(made.model, made.x, made.y, method, norm="L2", eps="minimum")
    for size in (1, 3):
        parts = attack(made.model, made.x.flip(0), made.y.flip(0), method, norm="L2", eps="minimum",
                       batch_size=size, numbers=range(3, -1, -1))  # fmt: skip

        assert torch.equal(parts.x_adv.flip(0), whole.x_adv)
        assert torch.equal(parts.forwards.flip(0), whole.forwards)
        assert torch.equal(parts.backwards.flip(0), whole.backwards)


def test_the_distance_is_never_above_that_of_a_loop_over_the_same_radii():
    made = problem("cnn", 1, 8, 8, count=6)
    found = attack(made.model, made.x, made.y, PGD("minimum", "L2", steps=5, radii=3, random_start=False))
    distance = ball("L2", 0).distance(made.x, found.x_adv)
    fixed = [attack(made.model, made.x, made.y, PGD(radius, "L2", steps=5, random_start=False)).success
             for radius in grid("L2", 64, 3)]  # fmt: skip
    smallest = [min(radius for radius, success in zip(grid("L2", 64, 3), fixed, strict=True) if success[row])
                for row in range(6)]  # fmt: skip

    assert (distance <= torch.tensor(smallest, dtype=torch.float64)).all()


def test_every_pass_of_every_radius_is_counted():
    made = problem("cnn", 1, 8, 8, count=4)
    passes = []
    made.model.register_forward_hook(lambda module, inputs, output: passes.append(len(inputs[0])))
    result = attack(made.model, made.x, made.y, PGD("minimum", "L2", steps=6, radii=4), batch_size=1)

    # Four radii of six queries, their verdicts and that of the clean image at most.
    assert (result.forwards <= 4 * 7 + 1).all()
    assert (result.forwards > 4).all()
    assert sum(passes) >= result.forwards.sum()


# One-pixel changes at most 300 values, so it refuses radii of the grid.
@pytest.mark.parametrize("name", [name for name, kind in classes().items() if not kind.seeks_nearest
                                  and kind.norms[0] in NORMS and not issubclass(kind, HookedAttack)
                                  and name != "one_pixel"])  # fmt: skip
def test_attacks_that_need_a_radius_can_be_run_without_one(name):
    kind = classes()[name]
    subject = AttackUnderTest(kind(EPS[kind.norms[0]], kind.norms[0]))
    made = subject.images(count=1)
    result = attack(made.model, made.x, made.y, replace(subject.made(), eps="minimum", radii=2))

    assert result.forwards.min() > 1
    with torch.no_grad():
        assert torch.equal(made.model(result.x_adv).argmax(1) != made.y, result.success)


def test_too_many_radii_are_refused():
    with pytest.raises(UserError, match="radii must be at most 16, not 17"):
        Square(0.1, radii=17)
