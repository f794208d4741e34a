from dataclasses import replace

import pytest
import torch
from robustkit.attacks import APGD
from robustkit.attacks.gradient.apgd_l1 import SparseState, published

from robustkit import attack
from tests.problems import images, problem, seen, trials


def driven(steps: int, eps: float = 2.0, values: int = 400) -> list[SparseState]:
    method = APGD(eps, "L1", steps=steps)
    x = 0.4 + images(2, values) / 5
    states = [method.init(trials(x))]
    while not states[-1].done.all():
        turn = len(states)
        states.append(method.step(states[-1], seen([float(turn)] * 2, images(2, values, seed=turn) - 0.5)))
    return states


@pytest.mark.parametrize(
    ("steps", "parts"), [(100, [30, 30, 40]), (10, [3, 3, 4]), (5, [1, 1, 3]), (3, [0, 0, 3]), (1, [0, 0, 1])]
)
def test_the_steps_are_shared_out_as_published(steps, parts):
    assert [stage.steps for stage in published(steps)] == [part for part in parts if part]


@pytest.mark.parametrize("steps", [100, 10, 5, 4, 3, 1])
def test_balls_of_three_two_and_one_eps_follow_each_other(steps):
    states = driven(steps)
    radii = [APGD(2.0, "L1").ball.distance(state.trial.x, state.query)[0].item() / 2.0 for state in states]
    early = steps * 3 // 10
    bounds = [3.0] * (early + 1) * bool(early) + [2.0] * (early + 1) * bool(early) + [1.0] * (steps - 2 * early + 1)

    assert len(radii) == len(bounds)
    assert all(radius <= bound + 1e-5 for radius, bound in zip(radii, bounds, strict=True))
    # Each stage uses the room it has.
    assert all(radius > bound - 0.5 for radius, bound in zip(radii, bounds, strict=True))


def test_there_is_one_query_per_step_and_one_per_later_stage():
    assert APGD(2.0, "L1", steps=100).cost.backwards == 102
    assert APGD(2.0, "L1", steps=3).cost.backwards == 3
    assert len(driven(100)) == 103


def test_a_later_stage_begins_at_the_best_point_of_the_one_before():
    method = APGD(2.0, "L1", steps=100)
    x = 0.4 + images(2, 400) / 5
    states = [method.init(trials(x))]
    for turn in range(31):
        states.append(
            method.step(states[-1], seen([9.0 if turn == 12 else -float(turn)] * 2, images(2, 400, seed=turn) - 0.5))
        )
    best = states[12].query

    assert torch.equal(states[31].best, best)
    assert method.ball.distance(x, states[31].query).max() <= 4.0 + 1e-5
    # Shrunk towards the image along the best point's own values, not along others.
    moved = (states[31].query - x).abs() > 0
    assert ((best - x).abs()[moved] > 0).all()


@pytest.mark.parametrize(("now", "step_size"), [(94, 1.0), (96, 0.6 / 1.5)])
def test_a_best_point_that_got_sparser_resets_the_step_size(now, step_size):
    method, x = APGD(2.0, "L1", steps=100), 0.4 + images(1, 400) / 5
    best = x + 0.01 * (torch.arange(400) < now)
    state = replace(
        method.init(trials(x)),
        queries=torch.tensor([5]), best=best, best_loss=torch.tensor([torch.inf]),
        step_size=torch.tensor([0.6]), changed=torch.tensor([100.0]),
    )  # fmt: skip
    after = method.step(state, seen([0.0], x - 0.5))

    assert after.step_size.item() == pytest.approx(step_size)
    assert after.share.item() == pytest.approx(now / 400 / 1.5)
    assert after.changed.item() == now


def test_the_step_size_never_falls_below_a_tenth():
    method, x = APGD(2.0, "L1", steps=100), 0.4 + images(1, 400) / 5
    state = method.init(trials(x))
    for _ in range(12):
        state = method.step(state, seen([0.0], x - 0.5))

    assert state.step_size.item() == pytest.approx(0.1)


def test_points_of_the_larger_balls_are_no_successes():
    made = problem("mlp", 1, 8, 8, count=30)
    method = APGD(0.3, "L1", steps=20)
    result = attack(made.model, made.x, made.y, method)

    assert result.success.any()
    assert (method.ball.distance(made.x, result.x_adv) <= 0.3).all()
