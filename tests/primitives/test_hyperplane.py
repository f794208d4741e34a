"""The nearest point on a hyperplane among valid images, against linear and convex programs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, linprog

from robustkit.errors import UserError
from robustkit.primitives.hyperplane import to_hyperplane


def nearest_length(norm: str, x: np.ndarray, normal: np.ndarray, rise: float) -> float:
    """The length of the smallest change, by a solver that knows nothing of ours."""
    low, high, count = -x, 1 - x, len(x)
    if norm == "L2":
        slope = normal * np.sign(rise)
        # The Lagrangian's minimum is the clipped multiple of the normal that rises by as much.
        change = lambda time: np.clip(time * slope, low, high)  # noqa: E731
        time = brentq(lambda time: change(time) @ slope - abs(rise), 0, 1e6, xtol=1e-13)
        return float(np.linalg.norm(change(time)))
    parts = 1 if norm == "Linf" else count  # Linf: one bound for all values; L1: one for each, whose sum counts
    bound = np.ones((count, 1)) if norm == "Linf" else np.eye(count)
    cost = np.concatenate([np.zeros(count), np.ones(parts)])
    rows = np.block([[np.eye(count), -bound], [-np.eye(count), -bound]])
    box = [*zip(low, high, strict=True), *[(0, None)] * parts]
    equal = np.concatenate([normal, np.zeros(parts)])[None]
    return float(linprog(cost, rows, np.zeros(2 * count), equal, [rise], box).fun)


@pytest.mark.parametrize(("norm", "order"), [("Linf", torch.inf), ("L2", 2), ("L1", 1)])
@settings(max_examples=15)
@given(seed=st.integers(0, 2**30), count=st.integers(1, 12), share=st.floats(0.02, 0.95), falls=st.booleans())
def test_no_shorter_change_reaches_the_hyperplane(norm, order, seed, count, share, falls):
    source = torch.Generator().manual_seed(seed)
    x = torch.rand(1, count, generator=source, dtype=torch.float64)
    normal = torch.randn(1, count, generator=source, dtype=torch.float64)
    sign = -1 if falls else 1
    most = torch.where(sign * normal > 0, 1 - x, x).mul(normal.abs()).sum().item()
    rise = sign * share * most
    change = to_hyperplane(norm, x, normal, torch.tensor([rise], dtype=torch.float64))

    assert ((x + change >= -1e-12) & (x + change <= 1 + 1e-12)).all()
    assert (change * normal).sum().item() == pytest.approx(rise, rel=1e-5)
    length = nearest_length(norm, x[0].numpy(), normal[0].numpy(), rise)
    assert change.norm(p=order).item() == pytest.approx(length, rel=1e-4)


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_what_the_box_does_not_allow_is_approached_as_far_as_possible(norm):
    x, normal = torch.tensor([[0.25, 0.5, 1.0]]), torch.tensor([[1.0, -2.0, 1.0]])

    assert torch.equal(to_hyperplane(norm, x, normal, torch.tensor([9.0])), torch.tensor([[0.75, -0.5, 0.0]]))


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_without_a_slope_or_a_rise_nothing_changes(norm):
    x, normal = torch.tensor([[0.25, 0.5], [0.25, 0.5]]), torch.tensor([[0.0, 0.0], [1.0, 2.0]])

    assert torch.equal(to_hyperplane(norm, x, normal, torch.tensor([1.0, 0.0])), torch.zeros(2, 2))


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_of_the_classifier_does_not_matter(norm, scale):
    x, normal = torch.rand(4, 9, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 1, 36).reshape(4, 9)
    plain = to_hyperplane(norm, x, normal, torch.full((4,), 0.3))

    assert torch.allclose(to_hyperplane(norm, x, normal * scale, torch.full((4,), 0.3 * scale)), plain, atol=1e-5)


def test_l0_has_no_nearest_point():
    with pytest.raises(UserError, match="L0"):
        to_hyperplane("L0", torch.rand(1, 3), torch.rand(1, 3), torch.ones(1))
