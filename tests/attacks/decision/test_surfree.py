import pytest
import torch
from robustkit.attacks import HopSkipJump, SurFree
from robustkit.attacks.decision.surfree import TRY

from robustkit.classifier.answers import answered
from robustkit.primitives.registry import build
from tests.attacks.decision.driven import aimed
from tests.attacks.linear import linear


def test_a_turn_shortens_the_way_by_its_cosine():
    made = linear(2)
    method = SurFree(0.1, "L2", frequencies=1.0)
    state = method.init(aimed(made.x, made.y))
    state = type(state)(**{**vars(state), "at": made.x + 0.1 * torch.nn.functional.normalize(state.query - 0.5)})
    for degrees in (60.0, -60.0):
        point = method._turned(state, torch.full((len(made.x),), degrees, dtype=torch.float64))
        cosine = torch.cosine_similarity(point - made.x, state.at - made.x)

        assert torch.allclose((point - made.x).norm(dim=1), torch.tensor(0.05), rtol=1e-3)
        assert torch.allclose(cosine, torch.tensor(0.5), rtol=1e-3)


def test_the_way_gets_shorter_with_every_new_direction_or_stays():
    made = linear(4)
    method = SurFree(0.1, "L2", queries=200)
    state = method.init(aimed(made.x, made.y))
    before = torch.full((len(made.x),), torch.inf, dtype=torch.float64)
    while not state.done.all():
        state = method.step(state, answered(method, state, made.model))
        now = method.ball.distance(made.x, state.at)
        assert (now <= before)[state.phase == TRY].all()
        before = torch.where(state.phase == TRY, now, before)

    assert (state.angle < 30).any()


def test_qeba_is_hopskipjump_among_low_frequencies():
    method = build("qeba", "L2", 1)
    assert isinstance(method, HopSkipJump)
    x, key = torch.zeros(3, 1, 32, 32), torch.arange(3)
    direction = method._direction(x, key, torch.zeros_like(key))

    assert direction.flatten(1).norm(dim=1).tolist() == pytest.approx([1, 1, 1])
    # Neighbours are alike where only a quarter of the frequencies is there.
    assert (direction[..., 1:] - direction[..., :-1]).square().sum() < 0.5 * direction.square().sum()
