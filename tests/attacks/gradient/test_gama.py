from dataclasses import replace

import pytest
import torch
from robustkit.attacks import GAMA
from robustkit.attacks.gradient.gama import _lengths, _weights

from robustkit import attack
from tests.problems import problem, seen, trials


def state_at(queries: int, count: int = 12):
    """A state before the given query, with the clean probabilities of three classes known."""
    method = GAMA(0.1, classes=3)
    clean = torch.randn(count, 3, generator=torch.Generator().manual_seed(1)).softmax(1)
    state = method.init(trials(torch.full((count, 4), 0.5)))
    return method, replace(state, clean=clean, queries=state.queries + queries)


def test_the_weight_falls_from_fifty_to_zero_within_25_steps_and_steps_shrink_at_60_and_85():
    weights, lengths = (50 * _weights(100)).tolist(), _lengths(100).tolist()

    assert weights[:3] == pytest.approx([50, 48, 46])
    assert weights[24:27] == pytest.approx([2, 0, 0])
    assert lengths[59:61] == pytest.approx([2, 0.2])
    assert lengths[84:86] == pytest.approx([0.2, 0.02])


@pytest.mark.parametrize(("queries", "weight"), [(1, 50), (5, 42), (25, 2), (26, 0), (100, 0)])
def test_it_climbs_the_published_loss(queries, weight):
    method, state = state_at(queries)
    logits = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    p = logits.softmax(1)
    published = p[:, 1:].amax(1) - p[:, 0] + weight * (p - state.clean).square().sum(1)
    expected, ours = (
        torch.autograd.grad(loss.sum(), logits)[0] for loss in (published, method.objective_at(logits, state))
    )

    assert torch.allclose(torch.nn.functional.normalize(ours), torch.nn.functional.normalize(expected))


def test_the_image_is_asked_first_then_a_corner_of_the_ball():
    method, x = GAMA(0.1, classes=3), torch.full((2, 40), 0.5)
    state = method.init(trials(x))
    assert torch.equal(state.query, x)

    logits = torch.randn(2, 3)
    after = method.step(state, replace(seen([0.0, 0.0], torch.ones(2, 40)), logits=logits))
    assert torch.allclose((after.query - x).abs(), torch.tensor(0.1), atol=1e-6)
    assert 10 < (after.query[0] > x[0]).sum() < 30
    assert torch.equal(after.clean, logits.softmax(1))

    later = method.step(after, replace(seen([0.0, 0.0], torch.ones(2, 40)), logits=2 * logits))
    assert torch.equal(later.clean, after.clean)


def test_a_confident_model_has_a_gradient_once_the_weight_is_zero():
    method, state = state_at(30, count=1)
    logits = torch.tensor([[200.0, 0.0, 1.0]]).requires_grad_()

    assert torch.autograd.grad(method.objective_at(logits, state).sum(), logits)[0].abs().max() > 0.1


def test_its_cost_is_one_query_more_than_its_steps():
    made = problem("mlp", 1, 8, 8)
    result = attack(made.model, made.x, made.y, GAMA(1e-5, steps=20))

    assert set(result.backwards.tolist()) == {21}
    assert set(result.forwards.tolist()) == {1 + 22}  # with the clean image's
