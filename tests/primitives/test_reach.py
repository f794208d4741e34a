"""How far a linear function rises within ball and box, against programs that know nothing of ours."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog

from robustkit.errors import UserError
from robustkit.primitives.reach import along, farthest, reach
from robustkit.primitives.threat import ball


def largest(norm: str, eps: float, x: np.ndarray, slope: np.ndarray) -> float:
    """The largest value of `slope @ change` with a change of length `eps` that keeps `x` in [0, 1]."""
    low, high = -x, 1 - x
    if norm == "Linf":
        return float(linprog(-slope, bounds=np.clip(np.stack([low, high], 1), -eps, eps)).fun * -1)
    if norm == "L1":
        both = np.concatenate([-slope, slope])
        bounds = [(0, side) for side in np.concatenate([high, -low])]
        return float(-linprog(both, np.ones((1, 2 * len(x))), [eps], bounds=bounds).fun)
    change = lambda pace: np.clip(pace * slope, low, high)  # noqa: E731
    if np.linalg.norm(change(1e9)) <= eps:
        return float(change(1e9) @ slope)
    pace = brentq(lambda pace: np.linalg.norm(change(pace)) - eps, 0, 1e9, xtol=1e-14)
    return float(change(pace) @ slope)


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
@settings(max_examples=20)
@given(seed=st.integers(0, 2**30), count=st.integers(1, 12), eps=st.floats(0.01, 1))
def test_no_point_of_ball_and_box_is_higher(norm, seed, count, eps):
    source = torch.Generator().manual_seed(seed)
    x = torch.rand(count, generator=source, dtype=torch.float64)
    slopes = torch.randn(3, count, generator=source, dtype=torch.float64)
    here = ball(norm, eps)
    ends = farthest(here, x, slopes)

    gains = ((ends - x) * slopes).sum(1)
    expected = [largest(norm, eps, x.numpy(), slope.numpy()) for slope in slopes]
    assert gains.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert bool(((ends >= 0) & (ends <= 1)).all())
    assert float(here.distance(x.expand(3, -1), ends).max()) <= eps * (1 + 1e-9)


def test_the_rise_is_counted_from_the_point():
    x, point = torch.tensor([0.5, 0.5]), torch.tensor([0.6, 0.5])
    rises, _ = reach(ball("Linf", 0.1), x, point, torch.tensor([[1.0, 2.0], [0.0, 0.0]]))

    assert rises.tolist() == pytest.approx([0.2, 0], abs=1e-7)


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.5), ("Linf", 1.0), ("L2", 0.5), ("L2", 5.0), ("L1", 5.0)])
def test_nothing_moves_where_nothing_is_steep(norm, eps):
    """In L2 the length that is left over a slope of zero was infinite, and times zero no number."""
    x = torch.rand(6)
    one = torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 0.0])
    ends = farthest(ball(norm, eps), x, torch.stack([0 * one, one]))

    assert torch.equal(ends[0], x.double())
    assert torch.equal(ends[1][one == 0], x[one == 0].double())
    assert ends[1][2] == pytest.approx(min(float(x[2]) + eps, 1))


def test_each_function_can_have_an_image_of_its_own():
    x, slopes = torch.rand(3, 2, 2), torch.rand(3, 2, 2) - 0.5
    together = farthest(ball("L2", 0.7), x, slopes)
    alone = [farthest(ball("L2", 0.7), *row) for row in zip(x, slopes[:, None], strict=True)]

    torch.testing.assert_close(together, torch.cat(alone))
    assert farthest(ball("L2", 0.7), x[:0], slopes[:0]).shape == (0, 2, 2)


def test_l0_is_refused():
    with pytest.raises(UserError, match="Linf, L2 and L1"):
        farthest(ball("L0", 2), torch.rand(4), torch.rand(1, 4))


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_share_of_the_way_spends_that_share_of_the_radius_in_the_box_and_climbs(norm, share):
    x, slope = torch.rand(5, 6), torch.rand(5, 6) - 0.5
    whole = ball(norm, 0.4)
    point = along(whole, x, farthest(whole, x, slope[None])[0], slope, share, most=0.1)
    spent = whole.distance(x[None].double(), point[None]).item()

    assert 0 < spent <= share * 0.4 * (1 + 1e-6)
    assert 0 <= point.min() <= point.max() <= 1
    assert ((point - x) * slope).min() >= 0


@pytest.mark.parametrize(
    ("eps", "share", "most", "values"), [(2, 0.1, 0.01, 20), (2, 1.0, 0.05, 40), (0.1, 1.0, 0.005, 20)]
)
def test_the_way_in_l1_moves_many_values_a_little(eps, share, most, values):
    x, slope = torch.full((100,), 0.5), torch.linspace(-1, 1, 100)
    end = farthest(ball("L1", eps), x, slope[None])[0]
    move = (along(ball("L1", eps), x, end, slope, share, most=max(most, 0.01)) - x).abs()

    assert ((end - x) != 0).sum() == math.ceil(2 * eps)
    assert move.max() == pytest.approx(most)
    assert move.sum() == pytest.approx(share * eps)
    assert (move > 1e-9).sum() == values
