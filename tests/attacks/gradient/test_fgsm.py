import torch
from robustkit.attacks import FGSM

from robustkit import attack
from tests.problems import problem, seen, trials


def test_it_is_its_formula():
    made = problem("mlp", 1, 8, 8)
    result = attack(made.model, made.x, made.y, FGSM(0.05))
    x = made.x.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(made.model(x), made.y, reduction="sum")
    formula = (made.x + 0.05 * torch.autograd.grad(loss, x)[0].sign()).clamp(0, 1)

    assert torch.allclose(result.x_adv, formula, atol=1e-6)


def test_the_l2_form_is_the_normalised_gradient():
    method = FGSM(0.5, "L2")
    state = method.init(trials(torch.full((1, 2), 0.5)))
    moved = method.step(state, seen([0.0], torch.tensor([[3.0, -4.0]]))).query

    assert torch.allclose(moved, torch.tensor([[0.8, 0.1]]))


def test_it_asks_once():
    made = problem("mlp", 1, 8, 8)
    result = attack(made.model, made.x, made.y, FGSM(0.05))

    # The clean image, the query, the verdict.
    assert set(result.forwards.tolist()) == {3}
    assert set(result.backwards.tolist()) == {1}


def test_a_random_start_stays_in_the_ball():
    method = FGSM(0.1, random_start=True)
    x = problem("mlp", 1, 8, 8).x
    state = method.init(trials(x))
    assert not torch.equal(state.query, x)

    moved = method.step(state, seen([0.0] * 12, x - 0.5)).query
    assert method.ball.contains(x, moved).all()
