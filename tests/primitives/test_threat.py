import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.ball import NORMS
from robustkit.primitives.norm_balls import project_l1
from robustkit.primitives.threat import THREATS, ball, norm_name
from tests.problems import images

EPS = {"Linf": 8 / 255, "L2": 0.5, "L1": 3.0, "L0": 5.0}
every_norm = pytest.mark.parametrize("norm", NORMS)
quietly = settings(max_examples=60)

pixels = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1, width=32))
anywhere = st.floats(-2, 2, width=32)
pairs = st.lists(st.tuples(pixels, anywhere), min_size=1, max_size=12)
# Below 1e-12 even float64 squares run out of numbers, and no pixel has so fine a grid.
radii = st.one_of(st.sampled_from([0.0, 1e-12, 1e-8, 1e-6, 1e-3, 8 / 255, 1.0]), st.floats(1e-12, 1))


def clean_and_point(values: list[tuple[float, float]], dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    table = torch.tensor(values, dtype=dtype)
    return table[:, 0].unsqueeze(0), table[:, 1].unsqueeze(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
@quietly
@given(values=pairs, eps=radii)
def test_the_exact_projection_lies_in_the_ball_and_in_the_box(norm, dtype, values, eps):
    x, point = clean_and_point(values, dtype)
    projected = ball(norm, eps).project_exact(x, point)

    assert ball(norm, eps).distance(x, projected) <= eps
    assert projected.min() >= 0
    assert projected.max() <= 1


@quietly
@given(values=pairs, count=st.integers(0, 20))
def test_the_exact_l0_projection_changes_at_most_eps_values(values, count):
    x, point = clean_and_point(values)
    projected = ball("L0", count).project_exact(x, point)

    assert (projected != x).sum() <= count
    assert projected.min() >= 0
    assert projected.max() <= 1


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32)])
@pytest.mark.parametrize(("norm", "eps"), [("L2", 0.1), ("L2", 0.5), ("L1", 0.3), ("L1", 12.0)])
def test_the_exact_projection_keeps_nearly_the_whole_change(norm, eps, shape):
    # Rounding leaves half of all projected points outside by a part in 1e8; on bright images small nudges round back.
    x, threat = 0.55 + 0.35 * images(64, *shape), ball(norm, eps)
    point = threat.project(x, x + images(64, *shape, seed=1) - 0.5)
    projected = threat.project_exact(x, point)

    assert (projected - point).abs().max() < 1e-6
    assert (threat.distance(x, projected) > 0.999 * threat.distance(x, point)).all()


@every_norm
def test_a_second_exact_projection_hardly_moves_a_point(norm):
    x, threat = images(20, 3, 8, 8), ball(norm, EPS[norm])
    projected = threat.project_exact(x, images(20, 3, 8, 8, seed=1))

    assert (threat.project_exact(x, projected) - projected).abs().max() < 1e-6


@every_norm
@pytest.mark.parametrize("shape", [(3, 8, 8), (64,), (1, 28, 28)], ids=str)
def test_a_row_is_projected_alone_as_in_a_batch(norm, shape):
    x, point, threat = images(16, *shape), images(16, *shape, seed=1), ball(norm, EPS[norm])
    alone = [threat.project_exact(x[row : row + 1], point[row : row + 1]) for row in range(16)]

    assert torch.equal(torch.cat(alone), threat.project_exact(x, point))


@every_norm
def test_a_projected_point_is_contained(norm):
    x, threat = images(50, 3, 8, 8), ball(norm, EPS[norm])

    assert threat.contains(x, threat.project(x, 3 * images(50, 3, 8, 8, seed=1) - 1)).all()


@every_norm
def test_points_outside_of_ball_or_box_are_not_contained(norm):
    x, threat = torch.full((2, 8), 0.99), ball(norm, 1.0)
    points = x.clone()
    points[0] = 0.5
    points[1, 0] = 1.0001

    assert not ball(norm, 0.2 if norm != "L0" else 3).contains(x, points)[0]
    assert not threat.contains(x, points)[1]


@every_norm
def test_the_distance_of_rows_is_their_norm(norm):
    x = torch.zeros(1, 2, 2)
    point = torch.tensor([[[0.0, 0.3], [-0.4, 0.0]]])
    known = {"Linf": 0.4, "L2": 0.5, "L1": 0.7, "L0": 2}[norm]

    assert ball(norm, 1).distance(x, point).item() == pytest.approx(known, abs=1e-7)


def test_l2_projection_leaves_inner_points_alone():
    # adv-lib's FMN scales them up to the sphere.
    x, point = torch.full((1, 4), 0.5), torch.full((1, 4), 0.55)

    assert torch.equal(ball("L2", 1.0).project(x, point), point)


@every_norm
def test_projection_leaves_inner_points_alone(norm):
    x, threat = images(20, 1, 8, 8), ball(norm, EPS[norm])
    inner = threat.project(x, x + (threat.random(x, torch.arange(20), 0) - x) * 0.5)

    # x + (point - x) may differ from point in the last place.
    assert (threat.project(x, inner) - inner).abs().max() < 1e-7


def _slow_projection(delta: np.ndarray, x: np.ndarray, eps: float) -> np.ndarray:
    room = np.where(delta > 0, 1 - x, x)

    def shrunk(by: float) -> np.ndarray:
        return np.minimum(np.maximum(np.abs(delta) - by, 0), room)

    low, high = 0.0, float(np.abs(delta).max()) + 1
    if shrunk(0).sum() <= eps:
        return np.sign(delta) * shrunk(0)
    for _ in range(100):  # far beyond the 53 bits of a float64
        middle = (low + high) / 2
        low, high = (middle, high) if shrunk(middle).sum() > eps else (low, middle)
    return np.sign(delta) * shrunk(high)


@settings(max_examples=80)
@given(values=pairs, eps=st.floats(0, 5))
def test_the_l1_projection_is_the_nearest_point(values, eps):
    x, delta = clean_and_point(values, torch.float64)
    radius = torch.tensor([eps], dtype=torch.float64)
    slow = _slow_projection(delta[0].numpy(), x[0].numpy(), eps)

    assert np.allclose(project_l1(delta, x, radius)[0].numpy(), slow, atol=1e-9)


def test_the_l1_projection_has_one_radius_per_row():
    x, delta = torch.full((3, 4), 0.5), torch.full((3, 4), 0.4)

    assert project_l1(delta, x, torch.tensor([0.0, 0.8, 9.0])).sum(1).tolist() == pytest.approx([0, 0.8, 1.6])


def test_a_row_of_the_l1_projection_does_not_depend_on_the_turns_of_its_neighbours():
    x, delta = images(12, 3, 8, 8), images(12, 3, 8, 8, seed=1) - 0.5
    delta[::3] *= 1e-4
    radii = torch.logspace(-6, 2, 12, dtype=torch.float64)
    alone = [project_l1(*(part[row : row + 1] for part in (delta, x, radii))) for row in range(12)]

    assert torch.equal(torch.cat(alone), project_l1(delta, x, radii))


def test_no_better_l1_point_is_found_by_a_general_optimiser():
    from scipy.optimize import minimize

    x, delta, eps = np.array([0.1, 0.9, 0.5]), np.array([-0.6, 0.5, 0.7]), 0.6
    # Signs of the answer are those of delta, so the absolute values are bounded by plain linear constraints.
    found = minimize(
        lambda size: np.sum((size * np.sign(delta) - delta) ** 2), np.zeros(3), bounds=[(0, 0.1), (0, 0.1), (0, 0.5)],
        constraints={"type": "ineq", "fun": lambda size: eps - size.sum()}, method="SLSQP", options={"ftol": 1e-14},
    )  # fmt: skip
    ours = project_l1(*(torch.from_numpy(part).unsqueeze(0) for part in (delta, x)), torch.tensor([eps]))[0].numpy()

    assert np.allclose(ours, found.x * np.sign(delta), atol=1e-5)


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
@pytest.mark.parametrize("size", [1e-30, 1e-13, 1.0, 1e13, 1e30])
def test_a_gradient_of_any_size_gives_a_move_of_unit_length(norm, size):
    # Logits multiplied by a tiny or a huge number would else hold the attack still.
    grad, threat = (images(5, 3, 8, 8) - 0.5) * size, ball(norm, 1.0)
    move = threat.steepest(grad, torch.full_like(grad, 0.5))

    assert threat.distance(torch.zeros_like(move), move).tolist() == pytest.approx([1] * 5, rel=1e-5)
    assert ((move * grad) >= 0).all()


@every_norm
def test_a_climb_is_a_step_along_the_steepest_direction_projected(norm):
    x, point, grad, threat = (
        images(9, 3, 8, 8),
        images(9, 3, 8, 8, seed=1),
        images(9, 3, 8, 8, seed=2),
        ball(norm, EPS[norm]),
    )
    length = torch.linspace(0, 2 * EPS[norm], 9).reshape(-1, 1, 1, 1)
    point, grad = threat.project(x, point), grad - 0.5
    before = [part.clone() for part in (x, point, grad)]
    step = threat.project(x, point + length * threat.steepest(grad, point))

    assert (threat.climb(x, point, grad, length) - step).abs().max() < 1e-6
    assert all(torch.equal(part, was) for part, was in zip((x, point, grad), before, strict=True))


@every_norm
def test_no_gradient_gives_no_move(norm):
    nothing = torch.zeros(2, 3, 4, 4)

    assert torch.equal(ball(norm, 1.0).steepest(nothing, nothing), nothing)


def test_an_l1_move_uses_only_values_with_room():
    point = torch.tensor([[1.0, 0.0, 0.5, 0.5]])
    move = ball("L1", 1.0).steepest(torch.tensor([[9.0, -9.0, 1.0, -2.0]]), point)

    assert move.tolist() == [[0, 0, 0, -1]]


@every_norm
@pytest.mark.parametrize("shape", [(3, 8, 8), (5,), (1,)], ids=str)
def test_random_points_lie_in_the_ball_and_belong_to_their_key(norm, shape):
    x, threat, keys = images(30, *shape), ball(norm, EPS[norm]), torch.arange(30) * 31
    points = threat.random(x, keys, 4)

    assert threat.contains(x, points).all()
    assert torch.equal(threat.random(x[7:9], keys[7:9], 4), points[7:9])
    assert not torch.equal(threat.random(x, keys, 5), points)


@every_norm
@pytest.mark.parametrize("shape", [(1, 8, 8), (13,), (1,)], ids=str)
def test_a_random_point_is_the_same_however_many_begin_together(norm, shape):
    x, keys, threat = images(512, *shape), torch.arange(512) * 31, ball(norm, EPS[norm])
    together = threat.random(x, keys, 3)

    for rows in (1, 3):
        parts = [threat.random(*pair, 3) for pair in zip(x[-90:].split(rows), keys[-90:].split(rows), strict=True)]
        assert torch.equal(torch.cat(parts), together[-90:])


@pytest.mark.parametrize(("norm", "power"), [("L2", 2), ("L1", 2), ("Linf", 2)])
def test_random_points_fill_the_ball_evenly(norm, power):
    # In a plane the share of points within half the radius is a quarter, whatever the norm.
    x, threat = torch.full((4000, 2), 0.5), ball(norm, 0.1)
    inner = (threat.distance(x, threat.random(x, torch.arange(4000) * 17 + 3, 0)) < 0.05).double().mean()

    assert inner.item() == pytest.approx(0.5**power, abs=0.03)


def test_random_l0_points_set_values_to_black_or_white():
    x = images(20, 1, 8, 8)
    points = ball("L0", 5).random(x, torch.arange(20), 0)
    changed = points[points != x]

    assert set(changed.tolist()) == {0.0, 1.0}
    assert ((points != x).flatten(1).sum(1) == 5).all()


def test_eps_is_an_exact_fraction():
    assert ball("linf", "8/255").eps == float(Fraction(8, 255)) == ball("Linf", 8 / 255).eps


@pytest.mark.parametrize(
    ("norm", "eps", "sentence"),
    [
        ("Linf", "8", "did you mean 8/255"),
        ("Linf", 300, "at most 1, not 300"),
        ("Linf", -0.1, "zero or more"),
        ("L2", math.nan, "finite"),
        ("L2", math.inf, "finite"),
        ("L1", "1/0", "is not a radius"),
        ("L1", "eight", "write a number or a fraction"),
        ("L0", 0.5, "whole number"),
        ("L3", 1, "no norm called 'L3'"),
    ],
)
def test_a_bad_radius_is_refused_with_the_fix(norm, eps, sentence):
    with pytest.raises(UserError, match=sentence):
        ball(norm, eps)


@pytest.mark.parametrize("text", ["linf", "LINF", "Linf"])
def test_the_case_of_a_norm_does_not_matter(text):
    assert norm_name(text) == "Linf"


def test_the_l0_projection_is_the_nearest_point_of_ball_and_box():
    # A value far beyond the box is kept before one that moves further within it: what counts is the distance left over.
    x, point = torch.tensor([[0.7, 0.2]]), torch.tensor([[5.0, 0.7]])
    assert ball("L0", 1).project(x, point).tolist() == [[1.0, pytest.approx(0.2)]]

    source = torch.Generator().manual_seed(0)
    x, point = torch.rand(30, 6, generator=source), 3 * torch.randn(30, 6, generator=source)
    candidates = [
        torch.where(torch.tensor([number in kept for number in range(6)]), point.clamp(0, 1), x)
        for kept in itertools.combinations(range(6), 2)
    ]
    nearest = torch.stack([(each - point).square().sum(1) for each in candidates]).amin(0)
    ours = ball("L0", 2).project(x, point)

    assert (ball("L0", 2).distance(x, ours) <= 2).all()
    assert torch.allclose((ours - point).square().sum(1), nearest)


@pytest.mark.parametrize("name", sorted(set(THREATS) - set(NORMS)))
def test_the_nearest_error_of_a_threat_without_distances_is_refused(name):
    with pytest.raises(UserError, match=f"The threat {name} needs a radius: .*; give several radii"):
        ball(name, "minimum")
