import pytest
import torch
from robustkit.attacks import SparseRS
from robustkit.attacks.score._sparse_local import PatchState, _frame_schedule, _patch_schedule

from robustkit import attack
from robustkit.primitives.local_balls import Frame, Patch
from tests.attacks.score.driven import states
from tests.problems import images, problem, trials

IMAGES = [(1, 6, 7), (3, 8, 8), (5, 9)]


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize(("norm", "eps"), [("patch", 3), ("patch", 1), ("frame", 1), ("frame", 2)])
def test_every_query_lies_in_the_ball_and_is_made_of_zeros_and_ones(shape, norm, eps):
    x = images(4, *shape)
    method, made = SparseRS(eps, norm, queries=30), problem("mlp", *shape)
    for state in states(method, made.model, trials(x, made.y[:4])):
        changed = state.query[state.query != x]
        assert (method.ball.distance(x, state.query) <= eps).all()
        assert ((changed == 0) | (changed == 1)).all()


def test_a_patch_covers_its_whole_square_and_lies_where_the_state_says():
    x, made = images(4, 3, 8, 8) * 0.5 + 0.25, problem("mlp", 3, 8, 8)
    for state in states(SparseRS(3, "patch", queries=40), made.model, trials(x, made.y[:4])):
        assert isinstance(state, PatchState)
        for row in range(4):
            top, left = int(state.new_row[row]), int(state.new_column[row])
            assert torch.equal(state.query[row, :, top : top + 3, left : left + 3], state.new_patch[row])
            assert ((state.query[row] != x[row]).any(0)).sum() == 9


def test_the_sides_of_patch_squares_are_those_published():
    # The authors' code at p_init = 0.4, a patch of 50 x 50 and 10 000 queries.
    side = _patch_schedule(10_000, 0.4, 50).side

    assert side[[0, 10, 11, 51, 201, 501, 1001, 2001, 4001, 6001, 8001]].tolist() == [
        31, 31, 22, 15, 11, 7, 5, 3, 2, 1, 1
    ]  # fmt: skip


def test_single_values_change_in_the_second_half_of_the_queries_on_lone_pixels():
    side, single = _patch_schedule(10_000, 0.4, 50)

    assert int(side.eq(1).nonzero()[0]) == 6001
    assert int(single.nonzero()[0]) == 6001 + (10_000 - 6001) // 2
    assert single[8001:].all()


def test_the_sides_of_frame_squares_are_those_published():
    # The authors' code at p_init = 0.5: 3 ceil((1 - t / T - 0.5) 0.5 width^2), and a pixel from half of the queries on.
    assert _frame_schedule(10_000, 0.5, 2).side[[0, 4999, 5000, 9999]].tolist() == [3, 3, 1, 1]
    assert _frame_schedule(10_000, 0.5, 6).side[[0, 2500, 4999, 5000]].tolist() == [27, 15, 3, 1]


def test_images_draw_places_and_colours_of_their_own():
    # The authors' code draws one square and one colour for the whole batch.
    x, made = torch.full((8, 1, 12, 12), 0.5), problem("mlp", 1, 12, 12)
    path = list(states(SparseRS(6, "patch", queries=10), made.model, trials(x, made.y[:8])))

    assert all(len({tuple(row.flatten().tolist()) for row in state.query}) == 8 for state in path)


@pytest.mark.parametrize("norm", ["patch", "frame"])
def test_what_a_linear_model_allows_is_found(norm):
    made = problem("linear", 1, 6, 6, count=30)
    weight = made.model[1].weight.detach()
    broken = torch.zeros(30, dtype=torch.bool)
    inside = Frame(1).pixels(made.x) if norm == "frame" else None
    for target in range(4):
        slope = (weight[target] - weight[made.y]).reshape(30, 6, 6)
        gain = torch.maximum(slope * (1 - made.x[:, 0]), -slope * made.x[:, 0])
        most = gain.flatten(1).amax(1) if inside is None else (gain * inside).flatten(1).sum(1)
        logits = made.model(made.x).detach()
        broken |= (target != made.y) & (logits[:, target] - logits.gather(1, made.y[:, None])[:, 0] + most > 1e-4)
    result = attack(made.model, made.x, made.y, SparseRS(1, norm, queries=400))

    assert (result.success <= broken).all()
    # A greedy search may end at a place that is not the best.
    assert (result.success != broken).sum() <= (6 if norm == "patch" else 0)


def test_there_is_nothing_to_search_in_a_patch_of_no_pixel():
    made = problem("linear", 1, 6, 6, count=3)

    assert torch.equal(attack(made.model, made.x, made.y, SparseRS(0, "patch", queries=5)).x_adv, made.x)
    assert Patch(0).distance(made.x, made.x).tolist() == [0, 0, 0]
