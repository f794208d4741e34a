import pytest
import torch
from robustkit.attacks import PGD, Noise
from torch import Tensor, nn

from robustkit import attack
from robustkit.primitives import registry
from tests.attacks.linear import linear, sparse_linear
from tests.problems import digits, problem, seen, trials

NORMS = ["Linf", "L2", "L1"]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_two_linear_classes_break_just_outside_of_their_distance(norm, factor):
    made = linear(2)
    for row in (0, 24, 48):
        eps = factor * made.distance[norm][row].item()
        # The default steps leave a random start's sideways part at a few per cent of eps; longer ones do not.
        method = PGD(eps, norm, steps=60, step_size=eps / 5)
        result = attack(made.model, made.x[row : row + 1], made.y[row : row + 1], method)

        assert result.success.item() == (factor > 1)


@pytest.mark.parametrize("norm", NORMS)
def test_exactly_the_images_nearer_than_eps_break(norm):
    # The margin towards each class in turn is linear, so the nearest error is found.
    made = linear(5, count=40)
    eps = made.distance[norm].quantile(0.5).item()
    clear = (made.distance[norm] / eps - 1).abs() > 0.02
    method = PGD(eps, norm, steps=60, step_size=eps / 5, loss="margin", targets=4)
    result = attack(made.model, made.x, made.y, method)

    assert clear.sum() > 33
    assert torch.equal(result.success[clear], (made.distance[norm] < eps)[clear])


@pytest.mark.parametrize("norm", [*NORMS, "L0"])
def test_a_permuted_problem_has_the_permuted_witness(norm):
    # Powers of two and a sum of few terms: the order of addition does not matter.
    order = torch.randperm(16, generator=torch.Generator().manual_seed(3))
    layer = nn.Linear(16, 2)
    with torch.no_grad():
        layer.weight.copy_(
            2.0 ** -(torch.arange(32) % 5).reshape(2, 16) * (1 - 2 * (torch.arange(32) % 3 == 1).reshape(2, 16).float())
        )
        layer.bias.zero_()
    x = (torch.arange(64).reshape(4, 16) * 7 % 31 + 1) / 64
    method = PGD({"L0": 3}.get(norm, 0.0625), norm, steps=4, random_start=False)
    plain = attack(layer, x, layer(x).argmax(1), method)
    permuted = attack(Permuted(layer, order), x[:, order], layer(x).argmax(1), method)

    assert torch.allclose(permuted.x_adv, plain.x_adv[:, order], atol=1e-6)
    assert torch.equal(permuted.success, plain.success)


class Permuted(nn.Module):
    def __init__(self, model: nn.Module, order: Tensor) -> None:
        super().__init__()
        self.model, self.back = model, order.argsort()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x[:, self.back])


def test_one_step_is_the_formula():
    method = PGD(0.1, steps=4, step_size=0.03, random_start=False)
    state = method.init(trials(torch.tensor([[0.5, 0.5, 0.99, 0.0]])))
    grad = torch.tensor([[2.0, -1e-9, 5.0, 0.0]])
    state = method.step(state, seen([0.0], grad))

    assert state.query.tolist() == [pytest.approx([0.53, 0.47, 1.0, 0.0])]


def test_the_default_step_can_cross_the_ball():
    assert PGD(0.1, steps=10).step_length == pytest.approx(0.025)
    assert PGD(5, "L0").step_length == 0.15
    assert PGD(0.1, step_size=0.0).step_length == 0


def test_without_a_random_start_the_image_itself_is_asked_first():
    x = problem("mlp", 3).x

    assert torch.equal(PGD(0.1, random_start=False).init(trials(x)).query, x)
    assert not torch.equal(PGD(0.1).init(trials(x)).query, x)


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.1), ("L2", 0.5), ("L1", 2.0), ("L0", 4)])
def test_gradients_beat_noise_on_real_images(norm, eps):
    made = digits()
    x, y = made.x[:60], made.y[:60]
    ours, noise = (
        attack(made.model, x, y, method) for method in (PGD(eps, norm, steps=20), Noise(eps, norm, queries=21))
    )

    assert ours.robust_accuracy < noise.robust_accuracy - 0.1


def test_a_larger_ball_breaks_more_images():
    made = digits()
    accuracies = [
        attack(made.model, made.x[:60], made.y[:60], PGD(eps, steps=10)).robust_accuracy for eps in (0, 0.05, 0.1, 0.2)
    ]

    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[0] > 0.85
    assert accuracies[-1] < 0.1


def test_odi_steps_climb_a_random_combination_of_the_logits_and_have_the_length_of_the_ball():
    method = PGD(0.1, steps=5, odi_steps=2, loss="margin")
    state = method.init(trials(torch.full((3, 40), 0.5)))
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    drawn, queries = [], [state.query]
    for _ in range(3):
        drawn.append(torch.autograd.grad(method.objective_at(logits, state).sum(), logits)[0])
        state = method.step(state, seen([0.0] * 3, torch.ones(3, 40)))
        queries.append(state.query)

    assert torch.equal(drawn[0], drawn[1])
    assert drawn[0].abs().max() <= 1
    assert not torch.equal(drawn[0][0], drawn[0][1])  # each trial draws its own
    assert (drawn[2].abs().sum(1) == 2).all()  # the margin
    assert torch.allclose(queries[1], (queries[0] + 0.1).clamp(max=0.6))


def test_odi_restarts_differ_and_cost_their_own_steps():
    made = problem("mlp", 1, 8, 8)
    result = attack(made.model, made.x, made.y, PGD(1e-5, steps=5, odi_steps=2, restarts=2))

    assert set(result.backwards.tolist()) == {2 * 7}


@pytest.mark.parametrize("norm", [*NORMS, "L0"])
def test_odi_starts_stay_in_the_ball(norm):
    made = problem("mlp", 20)
    eps = {"Linf": 0.01, "L2": 0.05, "L1": 0.2, "L0": 1}[norm]
    result = attack(made.model, made.x, made.y, PGD(eps, norm, steps=3, odi_steps=2))

    assert (PGD(eps, norm).ball.distance(made.x, result.x_adv) <= eps).all()


def test_multitargeted_aims_once_at_every_other_class():
    made = problem("mlp", 1, 8, 8, classes=4)
    method = registry.build("multitargeted:steps=5,restarts=2", "Linf", 1e-5)
    result = attack(made.model, made.x, made.y, method)

    assert method.targets == 9
    assert set(result.backwards.tolist()) == {3 * 2 * 5}


def test_long_steps_in_l0_find_the_fewest_values_of_a_linear_classifier():
    # Each value's gain is its slope times its room; a projection that ignored how far a point lies beyond the box took
    # the values with the most room instead, and steps of this length broke hardly any image.
    made = sparse_linear(4)
    for fewest in range(1, 7):
        rows = made.fewest == fewest
        method = PGD(fewest, "L0", steps=20, step_size=2.0, random_start=False, loss="margin")
        assert not rows.any() or attack(made.model, made.x[rows], made.y[rows], method).success.all()
