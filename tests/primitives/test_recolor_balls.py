"""Recolouring: CIELUV, linear interpolation in the grid, and worst cases that are known in closed form."""

import pytest
import torch
from robustkit.attacks import PGD, ReColorAdv
from torch import nn

from robustkit import UserError, attack
from robustkit.primitives.recolor_balls import Recolor, RecolorRGB, from_luv, interpolated, to_luv
from tests.problems import images


def test_white_red_and_black_have_the_lightness_and_chroma_of_the_standard():
    colours = torch.tensor([[1.0, 1, 1], [1, 0, 0], [0, 0, 0]]).double().reshape(3, 3, 1, 1)
    lightness, u, v = (to_luv(colours).flatten(1) * 200 - 100).unbind(1)

    torch.testing.assert_close((lightness + 100) / 2, torch.tensor([100, 53.24, 0]).double(), atol=0.02, rtol=0)
    torch.testing.assert_close(u, torch.tensor([0, 175.0, 0]).double(), atol=0.1, rtol=0)
    torch.testing.assert_close(v, torch.tensor([0, 37.75, 0]).double(), atol=0.1, rtol=0)


def test_colours_come_back_from_cieluv():
    colours = images(2, 3, 8, 8).double()

    torch.testing.assert_close(from_luv(to_luv(colours)), colours, atol=1e-9, rtol=0)


def test_a_linear_grid_is_interpolated_exactly():
    axes = [torch.linspace(0, 1, side).double() for side in (4, 5, 6)]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij")).unsqueeze(0)
    place = images(1, 3, 7, 7).double()

    torch.testing.assert_close(interpolated(grid, place), place)


@pytest.mark.parametrize("threat", [Recolor(0.1), RecolorRGB(0.1)])
def test_zero_changes_no_bit_and_gradients_are_finite_at_black_and_white(threat):
    x = torch.cat([images(1, 3, 4, 4), torch.zeros(1, 3, 4, 4), torch.ones(1, 3, 4, 4)])
    still = threat.origin(x).requires_grad_()
    shifted = threat.random(x, torch.arange(3), 0).requires_grad_()
    grads = torch.autograd.grad(
        threat.render(x, still).sum() + threat.render(x, shifted).square().sum(), [still, shifted]
    )

    assert torch.equal(threat.render(x, still), x)
    assert all(bool(grad.isfinite().all()) for grad in grads)


def test_one_shift_of_all_colours_is_added_to_all_pixels():
    x = 0.3 + 0.4 * images(2, 3, 5, 5)
    shift = torch.tensor([0.1, -0.05, 0.02])
    made = RecolorRGB(0.1).render(x, shift.reshape(1, 3, 1, 1, 1).expand(2, 3, 16, 16, 16))

    torch.testing.assert_close(made, x + shift.reshape(1, 3, 1, 1))


@pytest.mark.parametrize(("kind", "values"), [(PGD, {"steps": 20}), (ReColorAdv, {"steps": 80, "smoothness": 0.0})])
def test_equal_grey_levels_move_alike_and_the_worst_case_is_found(kind, values):
    source = torch.Generator().manual_seed(1)
    levels = torch.randint(5, 26, (20, 1, 4, 4), generator=source)
    x = levels / 31
    weight = torch.randn(16, generator=source)
    gap = 0.2
    # Per image: the sum of weights of each level's pixels can be used with either sign.
    gain = torch.zeros(20, 32).scatter_add(1, levels.flatten(1), weight.expand(20, 16)).abs().sum(1)
    nearest = gap / gain

    base = (x.flatten(1) * weight).sum(1)

    class Centred(nn.Module):
        def __init__(self, offset):
            super().__init__()
            self.weight, self.offset = nn.Parameter(weight), offset

        def forward(self, points):
            score = (points.flatten(1) * self.weight).sum(1) - self.offset - gap
            return torch.stack([torch.zeros_like(score), score], 1)

    for n in range(2):
        y = torch.zeros(1, dtype=torch.int64)
        near, far = (
            attack(Centred(base[n]).eval(), x[[n]], y, kind(float(nearest[n]) * share, "recolor", **values)).success
            for share in (1.05, 0.98)
        )
        assert bool(near)
        assert not bool(far)


def test_pictures_of_two_channels_are_refused():
    with pytest.raises(UserError, match="3 channels or 1, and these have 2"):
        Recolor(0.1).check((2, 4, 4))
