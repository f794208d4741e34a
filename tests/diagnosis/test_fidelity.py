"""The measure itself, where the true value is known."""

import pytest
import torch
from torch import nn

from robustkit.diagnosis.fidelity import agreement, response
from robustkit.diagnosis.layer_function import per_image
from robustkit.nethook.hooked import Inputs
from tests.diagnosis.nets import Lambda
from tests.networks import Falsified

A = torch.linspace(-1, 1, 12).reshape(3, 4)
V = torch.tensor([0.3, -0.2, 0.1, 0.25]).expand(3, 4)


def response_of(function, a=A, v=V):
    return response(Lambda(function), Inputs((a,), {}), Inputs((a + v,), {}), len(a), seed=0)


def is_one(values):
    return values.sub(1).abs().max() < 1e-3


@pytest.mark.parametrize("function", [lambda x: 3 * x, lambda x: x @ torch.ones(4, 2), lambda x: (x, {"twice": 2 * x})])
def test_a_linear_layer_has_a_fidelity_of_one_at_both_scales(function):
    measured = response_of(function)

    assert is_one(measured.fidelity)
    assert is_one(measured.fidelity_small)
    assert is_one(measured.linearity)
    assert not measured.unmoved.any()


def test_the_fidelity_of_a_square_is_the_analytical_one():
    # d = 2 a v + v v, predicted 2 a v.
    measured, real, predicted = response_of(torch.square), 2 * A * V + V * V, 2 * A * V
    expected = (predicted * real).sum(1) / real.square().sum(1)

    assert torch.allclose(measured.fidelity, torch.minimum(expected, 1 / expected).clamp(min=0), atol=1e-4)
    assert (measured.mixed == 0).all()


def test_a_step_function_has_a_fidelity_of_zero_at_both_scales_and_jumps():
    measured = response_of(lambda x: torch.round(4 * x) / 4)

    assert (measured.fidelity == 0).all()
    assert (measured.fidelity_small == 0).all()
    assert (measured.jumps == 1).all()


def test_a_prediction_twice_too_large_counts_like_one_twice_too_small():
    assert agreement(torch.tensor([2.0, 0.5, -1.0, 0.0]), torch.ones(4)).tolist() == [0.5, 0.5, 0, 0]


@pytest.mark.parametrize(("function", "unmoved"), [(lambda x: 0 * x, 1), (lambda x: 1 + 1e-9 * x, None)])
def test_no_response_and_a_response_below_rounding_have_no_fidelity(function, unmoved):
    measured = response_of(function)

    assert measured.fidelity.isnan().all()
    assert unmoved is None or (measured.unmoved == unmoved).all()


def test_max_pooling_of_near_ties_is_far_from_linear_but_convex():
    source = torch.Generator().manual_seed(0)
    a, v = (torch.randn(3, 1, 1, 800, generator=source) for _ in range(2))
    measured = response_of(nn.MaxPool2d((1, 8)), a, 5 * v)

    assert measured.linearity.max() < 0.7
    assert measured.mixed.max() < 1e-6


class LeftOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad):
        return torch.cat([0 * grad[:, :2], 2 * grad[:, 2:]], 1)


def test_what_a_backward_pass_leaves_out_is_the_share_of_the_response_that_comes_from_there():
    measured, parts = response_of(LeftOut.apply), V.square()

    assert torch.allclose(measured.missing, parts[:, :2].sum(1) / parts.sum(1), atol=1e-3)


@pytest.mark.parametrize("function", [torch.relu, nn.MaxPool1d(4)], ids=["kink", "tie"])
def test_a_backward_pass_that_chooses_one_side_of_a_kink_leaves_nothing_out(function):
    # The largest move is not that of the first input, to which the gradient of a tie goes.
    measured = response_of(function, torch.zeros(3, 4), -V)

    assert measured.fidelity_small.max() < 0.95
    assert (measured.missing == 0).all()


def test_a_gradient_that_is_reversed_at_some_values_is_wrong_in_a_random_direction_though_its_fidelity_is_high():
    source = torch.Generator().manual_seed(0)
    a, v = torch.rand(200, 1000, generator=source), torch.randn(200, 1000, generator=source).sign() / 10
    measured = response_of(lambda x: Falsified.apply(x, -1.0, 10), a, v)
    honest = response_of(torch.clone, a, v)

    # The error is twice the sum of a tenth of the terms: squared, 0.4 on average. Its unit, squared, is 1 + z^2 where
    # all terms add up to z standard deviations, and 1 / (1 + z^2) is 0.656 on average.
    assert measured.error.square().mean().sqrt() == pytest.approx((0.4 * 0.656) ** 0.5, abs=0.06)
    assert measured.bend.abs().max() < 0.01
    assert honest.error.abs().max() < 0.01
    assert measured.fidelity_small.sub(0.8).abs().max() < 1e-3


def test_a_straight_through_gradient_of_fine_steps_is_right_in_a_random_direction():
    a = torch.rand(50, 400, generator=torch.Generator().manual_seed(0))
    measured = response_of(lambda x: x + (torch.round(50 * x) / 50 - x).detach(), a, 0.2 * (a.flip(1) - 0.5).sign())

    assert measured.error.square().mean().sqrt() < 0.1


@pytest.mark.parametrize("function", [torch.relu, nn.MaxPool1d(4)], ids=["kink", "tie"])
def test_no_gradient_is_wrong_in_a_random_direction_where_the_move_starts_at_a_kink(function):
    measured = response_of(function, torch.zeros(3, 4), V)

    assert measured.error.abs().max() < 1e-3


def test_several_arguments_move_together():
    a, b = A, A.flip(0)
    measured = response(
        Lambda(lambda x, *, other, scale: scale * (x + other)),
        Inputs((a,), {"other": b, "scale": 2}), Inputs((a + V,), {"other": b - V / 2, "scale": 2}), 3, seed=0,
    )  # fmt: skip

    assert is_one(measured.fidelity)
    assert measured.reach.allclose((V / 2).norm(dim=1) * 2 / (2 * (a + b)).norm(dim=1))


def test_a_layer_may_write_into_its_input():
    before = A.clone()

    assert is_one(response_of(lambda x: x.mul_(2)).fidelity)
    assert torch.equal(A, before)


def test_a_random_layer_is_measured_with_fixed_draws_and_marked():
    measured = response_of(lambda x: x + torch.randn_like(x))

    assert is_one(measured.fidelity)
    assert (measured.randomized == 1).all()


def test_inputs_of_different_shapes_are_not_compared():
    assert response(Lambda(lambda x: x), Inputs((A,), {}), Inputs((A[:2],), {}), 3, seed=0) is None


@pytest.mark.parametrize(("shape", "axis"), [((6, 5), 0), ((12, 2, 5), 0), ((5, 6, 2), 1), ((7,), None)])
def test_the_axis_of_the_images_is_found(shape, axis):
    values = torch.arange(torch.Size(shape).numel()).reshape(shape)
    rows = per_image(values, 6)
    expected = values.expand(6, -1) if axis is None else values.movedim(axis, 0).reshape(6, -1)

    assert torch.equal(rows, expected)
