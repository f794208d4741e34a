"""Rounding to 8 bits: inside the ball to the last level, and as near as that allows."""

import numpy as np
import pytest
import torch

from robustkit.adversarial_examples.eight_bits import distance, eps_of_levels, levels_of, roundings
from robustkit.errors import UserError
from robustkit.primitives.threat import ball, exact

BALLS = [("Linf", "8/255"), ("Linf", "0.1"), ("L2", "0.5"), ("L2", "3"), ("L1", "2.5"), ("L1", "40"), ("L0", "7")]


def pair(norm: str, eps: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A picture of 8 bits, and a point at the border of its ball."""
    generator = torch.Generator().manual_seed(seed)
    x = (torch.rand(1, 3, 9, 7, generator=generator) * 255).round() / 255
    point = x + 2 * torch.rand(x.shape, generator=generator) - 1
    return x[0], ball(norm, eps).project_exact(x, point)[0]


@pytest.mark.parametrize(("norm", "eps"), BALLS)
@pytest.mark.parametrize("seed", range(5))
def test_every_rounding_is_in_the_ball_and_less_than_a_level_away(norm, eps, seed):
    x, x_adv = pair(norm, eps, seed)
    clean, radius = levels_of(x), exact(eps)
    for levels in roundings(clean, x_adv, norm, eps):
        change = np.abs(levels - clean)
        used = {"Linf": change.max(), "L2": (change**2).sum(), "L1": change.sum(), "L0": 255 * (change > 0).sum()}[norm]

        assert int(used) <= ((radius * 255) ** 2 if norm == "L2" else radius * 255)
        assert levels.min() >= 0
        assert levels.max() <= 255
        assert np.abs(levels - 255 * x_adv.double().numpy()).max() < 1 + 1e-3


def test_a_point_on_the_levels_stays_where_it_is():
    x, _ = pair("Linf", "8/255", 0)
    x_adv = (x + 8 / 255).clamp(0, 1)
    clean = levels_of(x)

    assert np.array_equal(roundings(clean, x_adv, "Linf", "8/255")[0], np.minimum(clean + 8, 255))


@pytest.mark.parametrize(("norm", "expected"), [("Linf", 4 / 255), ("L2", 5 / 255), ("L1", 7 / 255), ("L0", 2)])
def test_distances_are_of_whole_levels(norm, expected):
    clean = np.zeros((1, 2, 2), dtype=np.int64)
    levels = np.array([[[3, 0], [0, 4]]], dtype=np.int64)

    assert distance(clean, levels, norm) == pytest.approx(expected, rel=1e-12)


def test_linf_gets_a_whole_number_of_levels():
    assert [eps_of_levels("Linf", eps) for eps in ("0.1", "8/255", "minimum")] == ["25/255", "8/255", "minimum"]
    assert eps_of_levels("L2", "0.5") == "0.5"
    with pytest.raises(UserError, match="8-bit image"):
        eps_of_levels("Linf", "1/256")


def test_without_a_radius_farther_pictures_are_tried_where_rounding_may_lose_the_nearest_error():
    x = torch.full((1, 4, 4), 100 / 255)
    nearest = x + 1.4 / 255
    steps = {int((levels - levels_of(x)).max()) for levels in roundings(levels_of(x), nearest, "Linf", "minimum")}

    assert steps == {1, 2, 3}  # 1.4 levels are rounded both ways, then stretched up to twice as far
