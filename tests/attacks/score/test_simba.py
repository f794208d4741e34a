from itertools import pairwise

import pytest
import torch
from robustkit.attacks import SimBA
from robustkit.attacks._cosines import cosines

from robustkit import attack
from robustkit.errors import UserError
from tests.attacks.linear import linear
from tests.attacks.score.driven import states
from tests.problems import images, problem, trials


def basis_of(method: SimBA, *shape: int) -> torch.Tensor:
    x = images(1, *shape)
    state = method.init(trials(x))
    count = state.order.shape[1]
    return torch.cat([method._vector(state, torch.tensor([tried])) for tried in range(count)]).flatten(1)


@pytest.mark.parametrize(("shape", "count"), [((2, 3, 5), 30), ((7,), 7), ((4, 4), 16)])
def test_the_pixel_basis_is_every_value_once(shape, count):
    basis = basis_of(SimBA(0.1, "L2", basis="pixel"), *shape)

    assert len(basis) == count
    assert torch.equal(basis @ basis.t(), torch.eye(count))


def test_the_lowest_frequencies_of_each_channel_are_tried_first_then_those_up_to_twice_as_high():
    basis = basis_of(SimBA(0.1, "L2", frequencies=0.25), 2, 16, 24)
    spectrum = (cosines(16).float() @ basis.reshape(-1, 2, 16, 24) @ cosines(24).float().t()).abs() > 1e-4
    group = torch.maximum((torch.arange(16) // 4 + 1).unsqueeze(1), torch.arange(24) // 6 + 1)
    share = (spectrum * group).flatten(1).sum(1)

    assert torch.allclose(basis @ basis.t(), torch.eye(2 * 8 * 12), atol=1e-5)
    assert (spectrum.flatten(1).sum(1) == 1).all()
    assert (share[: 2 * 4 * 6] == 1).all()
    assert (share[2 * 4 * 6 :] == 2).all()


def test_each_image_tries_the_vectors_in_an_order_of_its_own():
    order = SimBA(0.1, "L2").init(trials(images(5, 1, 8, 8))).order

    assert (order.sort(1).values == order[0].sort().values).all()
    assert len({tuple(row.tolist()) for row in SimBA(0.1, "L2", basis="pixel").init(trials(images(5, 9))).order}) == 5


def test_a_vector_is_tried_backwards_only_where_forwards_did_not_help():
    made = linear(2)
    method = SimBA(1, "L2", queries=60, basis="pixel", step_size=0.001)
    path = list(states(method, made.model, trials(made.x, made.y)))
    for before, now in pairwise(path):
        helped = now.best_loss > before.best_loss
        assert torch.equal(now.tried - before.tried, (helped | before.against).long())
    # Of each vector one side helps, so after two queries for each, every value has moved in its direction.
    weight = made.model[0].weight.detach()
    moved = path[-1].best - made.x

    assert torch.equal(moved.sign(), (weight[1 - made.y] - weight[made.y]).sign())


def test_points_stay_in_the_ball_when_the_steps_lead_out_of_it():
    made = problem("cnn", 1, 8, 8)
    method = SimBA(0.2, "L2", queries=100, step_size=0.5)
    for state in states(method, made.model, trials(made.x, made.y)):
        assert method.ball.contains(made.x, state.query).all()


def test_an_unknown_basis_is_refused():
    with pytest.raises(UserError, match="basis"):
        SimBA(0.1, "L2", basis="wavelet")


def test_both_bases_break_images():
    made = problem("cnn", 1, 8, 8)
    for basis in ("pixel", "dct"):
        assert attack(made.model, made.x, made.y, SimBA(0.5, "L2", queries=200, basis=basis)).success.any()
