import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robustkit.errors import UserError
from robustkit.primitives.local_balls import Frame, Patch
from robustkit.primitives.threat import ball
from robustkit.primitives.windows import window_sums
from tests.problems import images

every_shape = pytest.mark.parametrize("shape", [(1, 6, 6), (3, 5, 8), (7, 4), (2, 3, 5, 5)])
quietly = settings(max_examples=40)


def changed_at(x: torch.Tensor, *places: tuple[int, int]) -> torch.Tensor:
    point = x.clone()
    for row, column in places:
        point[..., row, column] = 1 - point[..., row, column]
    return point


@pytest.mark.parametrize(
    ("places", "side", "depth"),
    [([], 0, 0), ([(0, 0)], 1, 1), ([(2, 3)], 1, 3), ([(1, 1), (1, 4)], 4, 2), ([(4, 2), (2, 3), (3, 3)], 3, 3)],
)
def test_distances_are_the_side_of_the_square_and_the_depth_of_the_frame(places, side, depth):
    x = images(2, 3, 6, 6)
    point = changed_at(x, *places)

    assert Patch(1).distance(x, point).tolist() == [side, side]
    assert Frame(1).distance(x, point).tolist() == [depth, depth]


@every_shape
@pytest.mark.parametrize("norm", ["patch", "frame"])
@pytest.mark.parametrize("eps", [0, 1, 2, 3, 20])
def test_projections_and_random_points_lie_in_the_ball_and_the_box(norm, shape, eps):
    threat, x = ball(norm, eps), images(4, *shape)
    key = torch.arange(4)
    far = x + 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))

    for point in (threat.project(x, far), threat.project_exact(x, far), threat.random(x, key, 0)):
        assert (threat.distance(x, point) <= eps).all()
        assert threat.contains(x, point).all()
        assert torch.equal(point.clamp(0, 1), point)
        assert torch.equal(threat.project(x, point), point)


@every_shape
def test_no_square_keeps_more_of_a_change_than_the_projection(shape):
    x, far = images(3, *shape), images(3, *shape, seed=5)
    kept = (Patch(3).project(x, far) - x).flatten(1).norm(dim=1)

    height, width = shape[-2:]
    for row, column in itertools.product(range(height - 2), range(width - 2)):
        point = x.clone()
        point[..., row : row + 3, column : column + 3] = far[..., row : row + 3, column : column + 3]
        assert ((point - x).flatten(1).norm(dim=1) <= kept + 1e-6).all()


@quietly
@given(row=st.integers(0, 5), column=st.integers(0, 4), size=st.sampled_from([1e-30, 1e-7, 0.3]))
def test_a_change_that_fits_into_a_square_is_kept_whole_however_small(row, column, size):
    x = torch.zeros(1, 2, 8, 7)
    point = x.clone()
    point[0, 0, row, column] = 1.0
    point[0, 1, row + 2, column + 2] = size

    assert torch.equal(Patch(3).project(x, point), point)


def test_the_steepest_direction_is_the_square_where_a_linear_loss_rises_most():
    grad = images(1, 2, 6, 7) - 0.5
    rises = {}
    for row, column in itertools.product(range(4), range(5)):
        rises[row, column] = float(grad[..., row : row + 3, column : column + 3].abs().sum())

    assert float((Patch(3).steepest(grad, grad) * grad).sum()) == pytest.approx(max(rises.values()))


def test_window_sums_are_the_sums_over_each_window():
    values = images(2, 5, 6).double()
    sums = window_sums(values, 2, 3)

    assert sums.shape == (2, 4, 4)
    assert torch.allclose(sums[:, 3, 1], values[:, 3:5, 1:4].sum((1, 2)))


def test_points_are_judged_in_the_callers_units_without_touching_other_pixels():
    original = (images(2, 1, 6, 6) * 255).round().to(torch.float64)
    x, point = (original / 255).float(), images(2, 1, 6, 6, seed=3)
    near = Patch(2).project_exact_around(original, (0.0, 255.0), x, point)

    assert (Patch(2).distance(original, near) == 2).all()
    assert near.min() >= 0
    assert near.max() <= 255


@pytest.mark.parametrize("norm", ["patch", "frame"])
def test_a_radius_is_a_whole_number_of_pixels(norm):
    with pytest.raises(UserError, match=f"radius of a {norm} is its .* in pixels, so eps must be a whole number"):
        ball(norm, "8/255")


def test_a_square_may_be_larger_than_the_image():
    x = images(2, 1, 4, 9)
    point = Patch(6).random(x, torch.arange(2), 0)

    assert Patch(6).distance(x, point).tolist() == [6, 6]
