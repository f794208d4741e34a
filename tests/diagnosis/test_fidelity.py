"""The measure itself, where the truth is known."""

import pytest
import torch
from torch import nn

from robustkit.diagnosis.fidelity import agreement, per_image, response
from robustkit.nethook.hooked import Inputs

A = torch.linspace(-1, 1, 12).reshape(3, 4)
V = torch.tensor([0.3, -0.2, 0.1, 0.25]).expand(3, 4)


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *values, **more):
        return self.function(*values, **more)


def answered(function, a=A, v=V, count=3):
    return response(Function(function), Inputs((a,), {}), Inputs((a + v,), {}), count, seed=0)


@pytest.mark.parametrize("function", [lambda x: 3 * x, lambda x: x @ torch.ones(4, 2), lambda x: (x, {"twice": 2 * x})])
def test_a_linear_layer_reads_one_everywhere(function):
    found = answered(function)

    for values in (found.fidelity, found.fidelity_small, found.linearity):
        assert values.sub(1).abs().max() < 1e-3
    assert not found.unmoved.any()


def test_a_square_reads_what_calculus_says():
    # d = 2 a v + v v, predicted 2 a v.
    found, real, predicted = answered(torch.square), 2 * A * V + V * V, 2 * A * V
    expected = (predicted * real).sum(1) / real.square().sum(1)

    assert torch.allclose(found.fidelity, torch.minimum(expected, 1 / expected).clamp(min=0), atol=1e-4)
    assert (found.mixed == 0).all()


def test_a_step_reads_zero_at_both_scales_and_jumps():
    found = answered(lambda x: torch.round(4 * x) / 4)

    assert (found.fidelity == 0).all()
    assert (found.fidelity_small == 0).all()
    assert (found.jumps == 1).all()


def test_overshooting_counts_like_falling_short():
    ratio = agreement(torch.tensor([2.0, 0.5, -1.0, 0.0]), torch.ones(4))

    assert ratio.tolist() == [0.5, 0.5, 0, 0]


def test_what_does_not_move_is_not_judged():
    found = answered(lambda x: 0 * x)

    assert found.fidelity.isnan().all()
    assert (found.unmoved == 1).all()


def test_a_response_below_rounding_is_not_judged():
    found = answered(lambda x: 1 + 1e-9 * x)

    assert found.fidelity.isnan().all()


def test_max_pooling_where_values_nearly_tie_is_far_from_linear_but_bends_one_way():
    source = torch.Generator().manual_seed(0)
    a, v = (torch.randn(3, 1, 1, 800, generator=source) for _ in range(2))
    found = answered(nn.MaxPool2d((1, 8)), a, 5 * v)

    assert found.linearity.max() < 0.7
    assert found.mixed.max() < 1e-6


def test_several_arguments_move_together():
    a, b = A, A.flip(0)
    found = response(
        Function(lambda x, *, other, scale: scale * (x + other)),
        Inputs((a,), {"other": b, "scale": 2}), Inputs((a + V,), {"other": b - V / 2, "scale": 2}), 3, seed=0,
    )  # fmt: skip

    assert found.fidelity.sub(1).abs().max() < 1e-3
    assert found.reach.allclose((V / 2).norm(dim=1) * 2 / (2 * (a + b)).norm(dim=1))


def test_a_layer_may_write_into_its_input():
    before = A.clone()
    found = answered(lambda x: x.mul_(2))

    assert found.fidelity.sub(1).abs().max() < 1e-3
    assert torch.equal(A, before)


def test_draws_are_held_fixed_while_a_layer_is_measured_and_noticed():
    found = answered(lambda x: x + torch.randn_like(x))

    assert found.fidelity.sub(1).abs().max() < 1e-3
    assert (found.stochastic == 1).all()


def test_inputs_whose_shapes_changed_are_not_compared():
    assert response(Function(lambda x: x), Inputs((A,), {}), Inputs((A[:2],), {}), 3, seed=0) is None


@pytest.mark.parametrize(("shape", "count"), [((6, 5), 6), ((12, 2, 5), 6), ((5, 6, 2), 6), ((7,), 6)])
def test_rows_belong_to_images_wherever_these_stand(shape, count):
    values = torch.arange(torch.Size(shape).numel()).reshape(shape)
    rows = per_image(values, count)

    assert len(rows) == count
    if shape == (5, 6, 2):
        assert torch.equal(rows[2], values[:, 2].flatten())
