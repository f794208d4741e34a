"""All rows take their steps together, and the best point may be the last one."""

from dataclasses import replace

import torch

from robustkit.classifier.answers import answered
from robustkit.engine.lockstep import best_points, run_in_lockstep
from robustkit.primitives import registry
from robustkit.primitives.protocol import BestState, begin
from tests.problems import problem, trials


def test_rows_step_together_until_the_slowest_is_done():
    model, x, y = problem("mlp", 6)
    attack, queries = registry.build("pgd:steps=3", "Linf", 0.1), []

    def answer(state):
        queries.append(state.query)
        return answered(attack, state, model)

    start = attack.init(trials(x, y))
    slower = replace(start, queries=start.queries.index_fill(0, torch.tensor([0]), -1))
    end = run_in_lockstep(attack, slower, answer)

    assert len(queries) == 4
    assert end.done.all()
    assert attack.ball.contains(x, end.query).all()


def test_the_best_point_is_the_last_one_only_where_it_is_better():
    x = torch.tensor([[0.1], [0.2]])
    first = begin(trials(x), x + 0.5)
    state = BestState(first.trial, first.query, first.queries, first.done, best=x, best_loss=torch.tensor([0.0, 0.9]))

    points = best_points(state, lambda points: points[:, 0])

    torch.testing.assert_close(points, torch.tensor([[0.6], [0.2]]))


def test_an_attack_without_a_best_point_ends_at_its_last_one():
    x = torch.tensor([[0.1], [0.2]])

    assert torch.equal(best_points(begin(trials(x), x + 0.5), lambda points: points[:, 0]), x + 0.5)


def test_another_objective_replaces_the_loss_and_its_gradient():
    model, x, y = problem("linear", 6)
    attack = registry.build("pgd:steps=1", "Linf", 0.1)
    state = attack.init(trials(x, y))

    seen = answered(attack, state, model, objective=lambda logits: logits[:, 2])

    torch.testing.assert_close(seen.loss, model(state.query)[:, 2].detach())
    torch.testing.assert_close(seen.grad, model[1].weight[2].detach().expand(len(x), -1))
