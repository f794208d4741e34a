import pytest
import torch
from robustkit.attacks import HopSkipJump
from robustkit.attacks.decision.hopskipjump import SAMPLE, WALK

from robustkit.classifier.answers import answered
from tests.attacks.decision.driven import aimed
from tests.attacks.linear import linear
from tests.problems import images


def states(method: HopSkipJump, made, count: int):
    state = method.init(aimed(made.x, made.y))
    for _ in range(count):
        state = method.step(state, answered(method, state, made.model))
        yield state


@pytest.mark.parametrize("norm", [pytest.param("L2", marks=pytest.mark.slow), "Linf"])
def test_labels_around_a_boundary_point_give_its_normal(norm):
    made = linear(2, values=6)
    method = HopSkipJump(0.1, norm, queries=1000, samples=300)
    weight = made.model[0].weight.detach()
    towards = (weight[1 - made.y] - weight[made.y]) if norm == "L2" else (weight[1 - made.y] - weight[made.y]).sign()
    seen_one = torch.zeros(len(made.x), dtype=torch.bool)
    for state in states(method, made, 400):
        first_step = (state.phase == WALK) & ~seen_one & (state.iteration == 1)
        if first_step.any():
            cosine = torch.cosine_similarity(method._normal(state), towards, dim=1)[first_step]
            assert cosine.min() > (0.9 if norm == "L2" else 0.5)
            assert cosine.median() > (0.95 if norm == "L2" else 0.7)
        seen_one |= first_step

    assert seen_one.float().mean() > 0.9


def test_the_number_of_samples_grows_with_the_root_of_the_iteration():
    method = HopSkipJump(0.1, "L2", samples=100, most_samples=180)

    assert method._wanted(torch.tensor([1, 2, 3, 4])).tolist() == [100, 141, 173, 180]


def test_samples_are_near_the_boundary_point_and_no_two_alike():
    made = linear(2)
    method = HopSkipJump(0.1, "L2", queries=500, samples=20)
    away = []
    for state in states(method, made, 60):
        # `images` of this problem lie far from the box's walls, so nothing is cut.
        row = state.phase[0] == SAMPLE
        if row and state.iteration[0] == 1:
            away.append(state.query[0] - state.base[0])

    assert len(away) == 20
    assert torch.stack(away).norm(dim=1).tolist() == pytest.approx([0.1] * 20, rel=1e-4)
    assert len({tuple(each.tolist()) for each in away}) == 20


def test_nothing_of_the_size_of_all_samples_is_kept():
    state = HopSkipJump(0.1, "L2", samples=100).init(aimed(images(2, 3, 8, 8), torch.zeros(2, dtype=torch.int64)))

    assert max(value.numel() for value in vars(state).values() if isinstance(value, torch.Tensor)) == 2 * 3 * 8 * 8
