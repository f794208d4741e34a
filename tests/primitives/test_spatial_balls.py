import math

import pytest
import torch
from torch.autograd import gradcheck

from robustkit.errors import UserError
from robustkit.primitives.spatial_balls import Flow, Rotation, Spatial, Translation, moved
from robustkit.primitives.threat import ball
from tests.problems import images


def same(count: int, *values: float) -> torch.Tensor:
    return torch.tensor([values] * count)


@pytest.mark.parametrize("threat", [Rotation(30.0), Translation(3.0), Spatial(30.0), Flow(1.0)])
def test_parameters_of_zero_change_no_bit(threat):
    x = images(3, 3, 8, 11)

    assert torch.equal(threat.render(x, threat.origin(x)), x)


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("side", [7, 8])
def test_a_rotation_by_right_angles_moves_pixels_bit_for_bit(turns, side):
    x = images(2, 3, side, side)

    assert torch.equal(Rotation(180.0).render(x, same(2, 90.0 * turns)), x.rot90(turns, (2, 3)))


def test_half_a_turn_of_a_picture_that_is_not_square_does_not_shear_it():
    x = images(2, 1, 5, 9)

    assert torch.equal(Rotation(180.0).render(x, same(2, 180.0)), x.rot90(2, (2, 3)))


def test_a_rotation_of_a_wide_picture_keeps_lengths():
    # foolbox turns relative coordinates, so a quarter turn of a wide picture squeezes it.
    x = torch.zeros(1, 1, 9, 21)
    x[0, 0, 4, 8:13] = 1
    upright = Rotation(90.0).render(x, same(1, 90.0))

    assert upright[0, 0, 2:7, 10].tolist() == [1] * 5
    assert upright.sum() == 5


@pytest.mark.parametrize(("down", "right"), [(2, 0), (0, 3), (-1, 2), (-2, -2)])
def test_a_whole_shift_is_a_shift_of_pixels_with_black_behind_it(down, right):
    # foolbox divides by the side instead of the side less one, so that its pixel is a little shorter than one.
    x, expected = images(2, 3, 6, 9), torch.zeros(2, 3, 6, 9)
    for row in range(6):
        for column in range(9):
            if 0 <= row - down < 6 and 0 <= column - right < 9:
                expected[:, :, row, column] = x[:, :, row - down, column - right]

    assert torch.equal(Translation(3.0).render(x, same(2, float(down), float(right))), expected)


def test_rotation_and_shift_are_those_of_torch():
    x, degrees, down, right = images(4, 3, 8, 8).double(), 17.0, 1.25, -0.5
    turn = math.radians(degrees)
    # grid_sample takes x before y, from -1 to 1 over 7 pixels.
    matrix = torch.tensor([[math.cos(turn), -math.sin(turn), 0], [math.sin(turn), math.cos(turn), 0]]).double()
    matrix[:, 2] = -matrix[:, :2] @ torch.tensor([right, down]).double() / 3.5
    grid = torch.nn.functional.affine_grid(matrix.expand(4, 2, 3), list(x.shape), align_corners=True)
    expected = torch.nn.functional.grid_sample(x, grid, align_corners=True)
    made = moved(x, torch.full((4,), degrees).double(), torch.tensor([[down, right]] * 4).double())

    # Places are rounded to 2^-16 pixels.
    assert (made - expected).abs().max() < 4 * 2.0**-16


def test_a_constant_flow_is_a_shift_whose_border_continues():
    x = images(2, 1, 6, 6)
    flow = torch.zeros(2, 2, 6, 6)
    flow[:, 1] = 1  # fetched from one pixel to the right

    assert torch.equal(Flow(1.0).render(x, flow), torch.cat([x[..., 1:], x[..., -1:]], 3))


@pytest.mark.parametrize("threat", [Rotation(30.0), Translation(2.0), Spatial(30.0), Flow(0.5)])
def test_the_gradient_through_the_renderer_is_that_of_finite_differences(threat):
    x = images(2, 2, 5, 6).double() * 0.8 + 0.1
    # Of a flow, no pixel may come near to where bilinear interpolation has a corner.
    start = threat.origin(x) + 0.25 if threat.norm == "flow" else threat.random(x, torch.arange(2), 0)
    parameters = start.requires_grad_()

    # Steps much longer than the 2^-16 pixels that places are rounded to.
    assert gradcheck(lambda values: threat.render(x, values), parameters, eps=1e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["spatial", "rotation", "translation", "flow"])
def test_rows_of_any_batch_have_the_same_bits(name):
    threat, x = ball(name, 2), images(33, 3, 9, 7)
    parameters = threat.random(x, torch.arange(33), 0)
    together = threat.render(x, parameters)
    alone = torch.cat([threat.render(x[row : row + 1], parameters[row : row + 1]) for row in range(33)])

    assert torch.equal(together, alone)


def test_spatial_allows_a_tenth_of_its_degrees_in_pixels():
    threat, x = Spatial(30.0), images(1, 1, 4, 4)

    assert threat.project(x, same(1, 99.0, -99.0, 0.5)).tolist() == [[30.0, -3.0, 0.5]]
    assert threat.distance(x, same(1, -15.0, 2.0, 0.0)).tolist() == pytest.approx([20.0])


@pytest.mark.parametrize("eps", [0.7, 3.3, 29.0, 1 / 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_judged_parameters_lie_within_the_radius_without_a_tolerance(eps, dtype):
    threat, x = Spatial(eps), images(2, 1, 4, 4).to(dtype)
    judged = threat.project_exact(x, torch.full((2, 3), 99.0, dtype=dtype))

    assert (threat.distance(x, judged) <= eps).all()
    assert (threat.distance(x, judged) > eps * (1 - 1e-6)).all()


def test_vectors_are_refused_in_one_line():
    with pytest.raises(UserError, match=r"The threat rotation changes images .* these inputs are \[12\]"):
        Rotation(30.0).check((12,))


def test_a_radius_beyond_half_a_turn_is_refused():
    with pytest.raises(UserError, match="A rotation radius is at most 180 degrees, not 200"):
        ball("rotation", 200)
