"""Points of a ball that are pictures of 8 bits."""

import pytest
import torch

from robustkit.errors import UserError
from robustkit.primitives.levels import at_whole_levels, on_levels
from robustkit.primitives.registry import build
from robustkit.primitives.threat import ball


def images(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, 5, 4), generator=generator).float() / 255


@pytest.mark.parametrize(
    ("norm", "eps"), [("Linf", "8/255"), ("Linf", "0.1"), ("L2", "0.5"), ("L2", "0.07"), ("L1", "1.5"), ("L0", "7")]
)
def test_a_point_of_the_ball_becomes_a_picture_of_the_ball(norm, eps):
    threat, x = ball(norm, eps), images(40)
    point = threat.project_exact(x, threat.random(x, torch.arange(40), 0))

    picture = on_levels(threat, x, point)
    steps = ((picture.double() - x.double()) * 255).round()

    torch.testing.assert_close(picture.double(), x.double() + steps / 255, rtol=0, atol=1e-7)
    assert bool((threat.distance(torch.zeros_like(steps), steps / 255) <= threat.eps * (1 + 1e-12)).all())
    assert torch.equal(on_levels(threat, x, threat.project_exact(x, picture)), picture)


def test_a_point_outside_of_the_ball_goes_to_the_nearest_picture():
    x = images(3)
    point = torch.rand(3, 3, 5, 4, generator=torch.Generator().manual_seed(1))

    for norm in ("Linf", "L2", "L1"):
        picture = on_levels(ball(norm, "2/255"), x, point)

        assert bool(((picture - point).abs() <= 0.5 / 255 + 1e-6).all())


def test_a_row_does_not_feel_its_neighbours():
    threat, x = ball("L2", "0.3"), images(9)
    point = threat.random(x, torch.arange(9), 0)
    together = on_levels(threat, x, point)

    assert all(
        torch.equal(on_levels(threat, x[row : row + 1], point[row : row + 1])[0], together[row]) for row in range(9)
    )


def test_a_radius_in_linf_is_cut_to_whole_levels():
    assert at_whole_levels(build("square", "Linf", "0.1")).eps == "25/255"
    assert at_whole_levels(build("square", "Linf", "8/255")).eps == "8/255"
    assert at_whole_levels(build("square", "L2", "0.1")).eps == "0.1"
    with pytest.raises(UserError, match="1/255"):
        at_whole_levels(build("square", "Linf", "0.003"))
