import pytest
import torch
from robustkit.attacks import AdamPGD

from robustkit import attack
from tests.problems import problem, seen, trials


def gradient(point: torch.Tensor) -> torch.Tensor:
    return torch.tensor([[3.0, -0.5, 0.1]]) - torch.tensor([[8.0, 0.1, 4.0]]) * (point - 0.5)


@pytest.mark.parametrize("scale", [1.0, 1e-30])
def test_steps_are_those_of_torchs_adam(scale):
    # The ball is wide enough for no projection; the step size falls at the sixth and at the ninth of twelve steps.
    method = AdamPGD(1.0, steps=12, step_size=0.01, random_start=False)
    state = method.init(trials(torch.full((1, 3), 0.5)))
    point = torch.full((1, 3), 0.5, requires_grad=True)
    adam = torch.optim.Adam([point], lr=0.01, maximize=True)
    for turn in range(12):
        state = method.step(state, seen([0.0], scale * gradient(state.query)))
        adam.param_groups[0]["lr"] = 0.01 if turn < 6 else 0.001 if turn < 9 else 0.00001
        point.grad = gradient(point.detach())
        adam.step()

        assert torch.allclose(state.query, point, atol=1e-6)


def test_the_first_l2_step_has_the_length_of_the_step_size():
    method = AdamPGD(2.0, "L2", step_size=0.1, random_start=False)
    x = torch.full((1, 3), 0.5)
    moved = method.step(method.init(trials(x)), seen([0.0], gradient(x))).query - x

    assert moved.norm().item() == pytest.approx(0.1, abs=1e-6)


def test_a_first_gradient_of_zero_does_not_set_the_scale():
    method = AdamPGD(0.5, step_size=0.1, random_start=False)
    x = torch.full((1, 3), 0.5)
    state = method.step(method.init(trials(x)), seen([0.0], torch.zeros(1, 3)))
    assert torch.equal(state.query, x)

    state = method.step(state, seen([0.0], gradient(x)))
    assert state.scale.item() == 3
    assert state.query.isfinite().all()


def test_scaled_logits_give_the_same_points():
    made = problem("mlp", 20)
    loud = torch.nn.Sequential(made.model, Times(1024.0))
    plain, scaled = (
        attack(model, made.x, made.y, AdamPGD(0.02, steps=6, loss="margin")) for model in (made.model, loud)
    )

    assert torch.equal(plain.x_adv, scaled.x_adv)
    assert 0 < plain.robust_accuracy < 1


class Times(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.factor * z
