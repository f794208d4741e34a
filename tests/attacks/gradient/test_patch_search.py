import itertools

import pytest
import torch
from robustkit.attacks import PatchSearch
from torch import Tensor, nn

from robustkit import attack
from robustkit.errors import UserError
from robustkit.primitives.protocol import Seen
from tests.attacks.driving import untargeted
from tests.problems import images, problem


def best_rises(model: nn.Module, x: Tensor, y: Tensor, side: int) -> Tensor:
    """`[N, K]` the highest lead of each class over the true one of a linear model, by brute force over all squares."""
    weight, logits = model[1].weight.detach(), model(x).detach()
    rises = torch.full_like(logits, -torch.inf)
    for row, column in itertools.product(range(x.shape[-2] - side + 1), range(x.shape[-1] - side + 1)):
        square = torch.zeros(x.shape[1:], dtype=torch.bool)
        square[..., row : row + side, column : column + side] = True
        for target in range(logits.shape[1]):
            slope = (weight[target] - weight[y]).reshape(x.shape)
            rise = (torch.maximum(slope * (1 - x), -slope * x) * square).flatten(1).sum(1)
            rises[:, target] = torch.maximum(rises[:, target], rise)
    return logits - logits.gather(1, y[:, None]) + rises


def test_on_a_linear_model_the_first_try_is_the_best_square_of_all():
    made = problem("linear", 2, 6, 7, count=20, classes=2)
    method = PatchSearch(2, "patch", steps=8, loss="margin")
    state = method.init(untargeted(made.x, made.y))
    grad = (made.model[1].weight[1 - made.y] - made.model[1].weight[made.y]).detach().reshape(made.x.shape)
    logits, zero = made.model(made.x).detach(), torch.zeros(20)
    query = method.step(state, Seen(made.y, logits, zero, grad)).query
    lead = made.model(query).detach()
    other = 1 - made.y[:, None]

    reached = (lead.gather(1, other) - lead.gather(1, made.y[:, None]))[:, 0]
    assert torch.allclose(reached, best_rises(made.model, made.x, made.y, 2).gather(1, other)[:, 0], atol=1e-5)


def test_a_linear_model_is_broken_exactly_where_some_square_can():
    made = problem("linear", 1, 6, 6, count=40)
    can = (best_rises(made.model, made.x, made.y, 1).scatter(1, made.y[:, None], -torch.inf) > 1e-5).any(1)
    result = attack(made.model, made.x, made.y, PatchSearch(1, "patch", steps=4, targets=3, loss="margin"))

    assert 0.1 < can.float().mean() < 0.9
    assert torch.equal(result.success, can)


def tried_places(places: int, side: int, shape: tuple[int, ...] = (1, 6, 6)) -> list[list[tuple[int, int]]]:
    x, none = images(3, *shape), torch.zeros(3)
    method = PatchSearch(side, "patch", steps=60, places=places)
    state = method.init(untargeted(x, torch.zeros(3, dtype=torch.int64)))
    grad, tried = images(3, *shape, seed=4) - 0.5, [[], [], []]
    for _ in range(state.losses.shape[1]):
        state = method.step(state, Seen(state.trial.y, torch.zeros(3, 2), none, grad))
        for row, here in enumerate(zip(state.row.tolist(), state.column.tolist(), strict=True)):
            tried[row].append(here)
    return tried


def test_with_as_many_tries_as_places_every_place_is_tried_once():
    assert all(sorted(row) == list(itertools.product(range(4), range(4))) for row in tried_places(99, side=3))


def test_places_that_are_tried_lie_apart_while_there_are_such():
    for row in tried_places(4, side=4, shape=(1, 12, 12)):
        assert all(max(abs(a - c), abs(b - d)) >= 2 for (a, b), (c, d) in itertools.combinations(row, 2))


def test_restarts_go_on_at_the_next_best_place():
    # Three places are tried and the second one leads to the highest loss, the third one to the next.
    x, y = images(3, 1, 8, 8), torch.zeros(3, dtype=torch.int64)
    method = PatchSearch(2, "patch", steps=20, places=3)
    trials = untargeted(x, y)
    object.__setattr__(trials, "restart", torch.tensor([0, 1, 2]))
    state, corners = method.init(trials), []
    for loss in (0.0, 1.0, 3.0, 2.0):
        state = method.step(state, Seen(y, torch.zeros(3, 2), torch.full((3,), loss), images(3, 1, 8, 8, seed=4) - 0.5))
        corners.append(torch.stack([state.row, state.column], 1))

    assert torch.equal(corners[3], torch.stack([corners[order][row] for row, order in enumerate((1, 2, 0))]))


def test_every_query_is_the_image_with_one_square_changed():
    made = problem("cnn", 3, 8, 8, count=4)
    method = PatchSearch(3, "patch", steps=30, restarts=3)
    result = attack(made.model, made.x, made.y, method)

    assert (method.ball.distance(made.x, result.x_adv) <= 3).all()


def test_the_ascent_raises_the_loss_above_every_place_that_was_tried():
    made = problem("cnn", 1, 12, 12, count=6, classes=10)
    short = attack(made.model, made.x, made.y, PatchSearch(2, "patch", steps=12, places=6))
    long = attack(made.model, made.x, made.y, PatchSearch(2, "patch", steps=60, places=6))

    assert long.robust_accuracy <= short.robust_accuracy


def test_an_input_without_height_and_width_is_refused():
    made = problem("mlp", 12)
    with pytest.raises(UserError, match=r"patch is a part of an image.* inputs of shape \[12\]"):
        attack(made.model, made.x, made.y, PatchSearch(2, "patch"))
