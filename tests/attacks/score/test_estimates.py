"""Attacks that climb estimated gradients: what they estimate, and how far they get on linear classifiers."""

import pytest
import torch
from robustkit.attacks import NES, SPSA

from robustkit import attack
from tests.attacks.linear import linear
from tests.attacks.score.driven import states
from tests.problems import problem, trials

CASES = [(NES, "Linf"), (NES, "L2"), (SPSA, "Linf")]


@pytest.mark.parametrize("kind", [NES, SPSA])
def test_the_estimate_is_the_gradient_of_the_margin_up_to_noise(kind):
    # Of n directions in d dimensions, the expected square of the cosine is n / (n + d), here 250 / 260.
    made = linear(2, values=10)
    method = kind(0.1, queries=502, directions=250)
    weight = made.model[0].weight.detach()
    *_, before, _ = states(method, made.model, trials(made.x, made.y))
    cosine = torch.cosine_similarity(before.total, weight[1 - made.y] - weight[made.y])

    assert cosine.square().mean().item() == pytest.approx(250 / 260, abs=0.02)


@pytest.mark.parametrize(("kind", "norm"), CASES)
def test_exactly_the_images_nearer_than_eps_break(kind, norm):
    made = linear(5, count=30)
    eps = made.distance[norm].quantile(0.5).item()
    # Adam goes on to wander in the values whose gradient is smaller than the noise.
    clear = (made.distance[norm] / eps - 1).abs() > (0.2 if kind is SPSA else 0.1)
    result = attack(made.model, made.x, made.y, kind(eps, norm, queries=700, step_size=0.1))

    assert torch.equal(result.success[clear], (made.distance[norm] < eps)[clear])


@pytest.mark.parametrize(("kind", "norm"), CASES)
def test_the_usual_budget_holds_many_steps(kind, norm):
    # torchattacks' SPSA takes one step by default, which breaks hardly anything.
    method = kind(0.1, norm)

    assert method.queries // (2 * method.directions + 1) >= 50


@pytest.mark.parametrize("kind", [NES, SPSA])
def test_the_two_sides_of_a_direction_are_queried_around_the_point(kind):
    x = 0.3 + 0.4 * problem("mlp", 12).x
    made = problem("mlp", 12)
    method = kind(0.01, queries=12, directions=2, spread=0.01)
    queries = [state.query for state in states(method, made.model, trials(x, made.y))]
    # The image, two sides of two directions, and then the next point with two sides.
    ahead, back, second, _, point, later, _ = queries[:7]

    assert torch.allclose((ahead + back) / 2, x, atol=1e-6)
    assert not torch.allclose(second - x, ahead - x, atol=1e-3)
    assert method.ball.contains(x, point).all()
    assert not torch.equal(point, x)
    assert not torch.allclose(later - point, ahead - x, atol=1e-3)
