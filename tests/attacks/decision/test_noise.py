import pytest
import torch
from robustkit.attacks import Noise

from robustkit import attack
from robustkit.errors import UserError
from tests.problems import images, problem, seen, trials


def test_every_query_is_a_new_point_of_the_ball():
    method, x = Noise(0.1, queries=5), images(3, 1, 4, 4)
    state, asked = method.init(trials(x)), []
    while not state.done.all():
        asked.append(state.query)
        state = method.step(state, seen([0.0] * 3, torch.zeros(3, 0)))
    asked.append(state.query)

    assert len(asked) == 5
    assert len({tuple(query.flatten().tolist()) for query in asked}) == 5
    assert all(method.ball.contains(x, query).all() for query in asked)


def test_a_survivor_costs_exactly_its_queries():
    made = problem("mlp", 1, 8, 8)
    result = attack(made.model, made.x, made.y, Noise(0.0001, queries=9))

    assert set(result.forwards.tolist()) == {1 + 9}
    assert set(result.backwards.tolist()) == {0}


def test_it_sees_labels_alone():
    assert Noise(0.1).sees == "labels"


def test_one_query_is_refused():
    with pytest.raises(UserError, match="queries must be a whole number of at least 2"):
        Noise(0.1, queries=1)
