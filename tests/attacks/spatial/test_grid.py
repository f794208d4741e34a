import itertools

import pytest
import torch
from robustkit.attacks import Grid
from torch import nn

from robustkit import attack
from robustkit.errors import UserError
from tests.problems import problem


def test_it_finds_exactly_what_loops_over_angles_and_shifts_find():
    made = problem("cnn", 3, 8, 8, count=12)
    method = Grid(5.0, "spatial", angles=5, shifts=3)
    result = attack(made.model, made.x, made.y, method)
    broken = torch.zeros(12, dtype=torch.bool)
    for degrees, down, right in itertools.product((-5, -2.5, 0, 2.5, 5), (-0.5, 0, 0.5), (-0.5, 0, 0.5)):
        query = torch.tensor([[degrees, down, right]]).float().expand(12, 3)
        with torch.no_grad():
            broken |= made.model(method.ball.render(made.x, query)).argmax(1) != made.y

    assert torch.equal(result.success, broken)
    assert 0 < broken.sum() < 12


def test_every_point_is_tried_once_and_the_image_first():
    method = Grid(30.0, "spatial")

    assert len(set(method.points)) == len(method.points) == 31 * 5 * 5 == method.cost.forwards
    assert method.points[0] == (0.0, 0.0, 0.0)
    assert sorted({point[1] for point in method.points}) == [-1.0, -0.5, 0.0, 0.5, 1.0]


class TurnedBy(nn.Module):
    """Class 1 for a picture whose white pixel has left its place."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = x[:, 0, 0, 3]
        return torch.stack([left - 0.5, 0.5 - left], 1)


def test_the_first_error_is_the_one_with_the_smallest_share_of_the_radius():
    x = torch.zeros(1, 1, 7, 7)
    x[0, 0, 0, 3] = 1
    result = attack(TurnedBy(), x, torch.tensor([0]), Grid(40.0, "rotation", angles=9))

    # The pixel is three pixels from the middle: half a pixel is about ten degrees.
    assert abs(result.parameters.item()) == 10


def test_a_translation_has_no_angles():
    assert len(Grid(2.0, "translation", angles=31, shifts=3).points) == 9


def test_a_norm_has_no_grid():
    with pytest.raises(UserError, match="Grid has no Linf form; it has spatial, rotation, translation"):
        Grid(0.1)
