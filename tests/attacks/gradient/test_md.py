import math
from dataclasses import replace

import pytest
import torch
from robustkit.attacks import MD

from tests.problems import seen, trials

LOGITS = torch.tensor([[3.0, 1.0, 2.0]])


def climbed(queries: int, restart: int, loss_target: int = -1) -> float:
    """What a query's objective is, for an image of class 0."""
    method = MD(0.1)
    state = method.init(trials(torch.full((1, 4), 0.5)))
    trial = replace(state.trial, restart=torch.tensor([restart]), loss_target=torch.tensor([loss_target]))
    return method.objective_at(LOGITS, replace(state, trial=trial, queries=torch.tensor([queries]))).item()


@pytest.mark.parametrize(
    ("queries", "restart", "expected"),
    [(0, 0, 3), (0, 1, 3), (1, 0, -3), (1, 1, 2), (19, 2, -3), (19, 3, 2), (20, 0, -1), (20, 1, -1), (49, 0, -1)],
)
def test_one_term_is_climbed_for_20_steps_and_then_the_margin(queries, restart, expected):
    # The first step of all raises the true class, as in the authors' code.
    assert climbed(queries, restart) == expected


@pytest.mark.parametrize(("queries", "expected"), [(1, 1), (20, -2)])
def test_a_class_to_aim_at_takes_the_place_of_the_likeliest(queries, expected):
    assert climbed(queries, restart=1, loss_target=1) == expected


@pytest.mark.parametrize("turn", [0, 1, 19, 20, 21, 30, 49])
def test_steps_are_cosines_from_two_eps_that_begin_anew(turn):
    # i - 1 up to and with the change point, then i - K' - 1, over K - K'.
    published = math.cos(((turn - 21) if turn > 20 else (turn - 1)) / 30 * math.pi) + 1
    method = MD(0.01)
    state = method.init(trials(torch.full((1, 4), 0.5)))
    state = replace(state, query=torch.full((1, 4), 0.49), queries=torch.tensor([turn]))
    moved = method.step(state, seen([0.0], torch.ones(1, 4))).query - 0.49

    assert moved[0, 0].item() == pytest.approx(min(0.01 * published, 0.02), abs=1e-6)


def test_two_restarts_are_its_two_forms():
    assert MD(0.1).restarts == 2
    assert MD(0.1).cost.backwards == 50


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_few_steps_are_steps_of_a_margin_too(steps):
    method = MD(0.1, steps=steps)
    state = method.init(trials(torch.full((1, 4), 0.5)))
    for _ in range(steps):
        state = method.step(state, seen([0.0], torch.ones(1, 4)))

    assert state.done.all()
    assert state.query.isfinite().all()
