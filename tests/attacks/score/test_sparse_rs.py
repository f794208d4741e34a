import pytest
import torch
from robustkit.attacks import SparseRS
from robustkit.attacks.score.sparse_rs import _moving

from robustkit import attack
from robustkit.primitives.registry import build
from tests.attacks.score.driven import states
from tests.problems import images, problem, trials


def test_exactly_the_images_that_one_value_can_break_are_broken():
    made = problem("linear", 18, count=40)
    can = torch.zeros(len(made.x), dtype=torch.bool)
    for place in range(made.x.shape[1]):
        for value in (0.0, 1.0):
            changed = made.x.clone()
            changed[:, place] = value
            can |= made.model(changed).argmax(1) != made.y
    # 36 changes are possible; that 480 random ones miss one of them has a probability of 1.4e-6.
    result = attack(made.model, made.x, made.y, SparseRS(1, "L0", queries=480))

    assert 0.1 < can.float().mean() < 0.95
    assert torch.equal(result.success, can)


def test_every_query_changes_as_many_values_as_it_may():
    # A pixel that is black already would not change if it were set to black.
    x = images(6, 3, 5, 4).round()
    made = problem("mlp", 3, 5, 4)
    for state in states(SparseRS(7, "L0", queries=60), made.model, trials(x, made.y[:6])):
        assert ((state.query != x).flatten(1).sum(1) == 7).all()
        assert torch.equal((state.query != x).flatten(1), state.proposed)


def test_whole_pixels_cost_all_their_channels():
    x = images(6, 3, 5, 4)
    made = problem("mlp", 3, 5, 4)
    for state in states(SparseRS(7, "L0", queries=60, whole_pixels=True), made.model, trials(x, made.y[:6])):
        changed = (state.query != x).flatten(2)
        assert (changed.any(1).sum(1) == 2).all()
        assert (changed.flatten(1).sum(1) <= 6).all()


def test_the_number_of_moving_places_falls_as_published():
    # The authors' code for L0 at first_share = 0.3 and 100 places, with 10 000 queries.
    moving = _moving(10_000, 0.3, 100)

    assert moving[[0, 1, 50, 51, 201, 501, 1001, 2001, 4001, 6001, 8001]].tolist() == [
        30, 15, 15, 7, 6, 5, 3, 3, 2, 2, 1
    ]  # fmt: skip


def test_images_draw_places_of_their_own():
    # The authors' code draws one set of places for the whole batch.
    x = torch.full((8, 1, 9, 9), 0.5)
    made = problem("mlp", 1, 9, 9)
    path = list(states(SparseRS(4, "L0", queries=10), made.model, trials(x, made.y[:8])))

    assert all(len({tuple(row.tolist()) for row in state.proposed}) == 8 for state in path)


@pytest.mark.parametrize("eps", [12, 1000])
def test_a_radius_of_all_values_is_no_error(eps):
    made = problem("mlp", 12)
    result = attack(made.model, made.x, made.y, SparseRS(eps, "L0", queries=30))

    assert result.success.any()


def test_the_name_of_the_paper_is_known():
    assert isinstance(build("sparse-rs:queries=7", "L0", 3), SparseRS)
