import pytest
import torch
from robustkit.attacks import BIM, MIFGSM, NIFGSM
from robustkit.attacks.gradient._momentum import normalised

from robustkit import attack
from tests.problems import problem, seen, trials


@pytest.mark.parametrize("kind", [MIFGSM, NIFGSM])
def test_without_momentum_it_is_bim(kind):
    made = problem("mlp", 1, 8, 8)
    momentum, plain = (attack(made.model, made.x, made.y, method) for method in (kind(0.03, decay=0.0), BIM(0.03)))

    assert torch.equal(momentum.x_adv, plain.x_adv)
    assert torch.equal(momentum.queries, plain.queries)


def test_the_direction_is_the_decayed_sum_of_normalised_gradients():
    method = MIFGSM(0.5, steps=5, decay=0.5)
    state = method.init(trials(torch.full((1, 2), 0.5)))
    state = method.step(state, seen([0.0], torch.tensor([[30.0, -10.0]])))
    assert torch.allclose(state.velocity, torch.tensor([[1.5, -0.5]]))

    # The second value's gradient has turned, yet its velocity has not.
    state = method.step(state, seen([0.0], torch.tensor([[1.9, 0.1]])))
    assert torch.allclose(state.velocity, torch.tensor([[2.65, -0.15]]))
    assert torch.allclose(state.query, torch.tensor([[0.7, 0.3]]))


def test_gradients_of_any_size_weigh_the_same():
    grad = torch.tensor([[1.0, -3.0]])

    assert torch.allclose(normalised(grad * 1e-30), normalised(grad))
    assert torch.allclose(normalised(grad * 1e30), normalised(grad))
    assert torch.equal(normalised(grad * 0), grad * 0)
