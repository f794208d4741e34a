import colorsys

import pytest
import torch
from torch.autograd import gradcheck

from robustkit.errors import UserError
from robustkit.primitives.color_ball import Color
from tests.problems import images


def changed(x: torch.Tensor, *parameters: float) -> torch.Tensor:
    return Color(1.0).render(x, torch.tensor([parameters] * len(x), dtype=x.dtype))


def test_parameters_of_zero_change_no_bit():
    x = images(3, 3, 4, 4)

    assert torch.equal(changed(x, 0, 0, 0, 0), x)


def test_brightness_adds_and_contrast_stretches_around_grey():
    x = 0.3 + 0.4 * images(3, 3, 4, 4)

    torch.testing.assert_close(changed(x, 0, 0, 0.1, 0), x + 0.1)
    torch.testing.assert_close(changed(x, 0, 0, 0, 0.3), 0.5 + 1.3 * (x - 0.5))


def test_hue_and_saturation_leave_grey_pictures_and_the_luma_of_others():
    grey = images(2, 1, 4, 4).expand(2, 3, 4, 4)
    x = 0.4 + 0.2 * images(2, 3, 4, 4)
    luma = torch.tensor([0.299, 0.587, 0.114]).reshape(3, 1, 1)

    # The published constants of YIQ have four digits.
    torch.testing.assert_close(changed(grey, 70, 0.3, 0, 0), grey, atol=1e-4, rtol=0)
    torch.testing.assert_close((changed(x, 70, 0.3, 0, 0) * luma).sum(1), (x * luma).sum(1), atol=1e-4, rtol=0)


def test_a_positive_hue_turns_the_same_way_as_in_hsv():
    red = torch.tensor([0.6, 0.4, 0.4]).reshape(1, 3, 1, 1)
    hue = colorsys.rgb_to_hsv(*changed(red, 120, 0, 0, 0).flatten().tolist())[0]

    assert hue == pytest.approx(1 / 3, abs=0.06)  # green; in YIQ it is not at exactly 120 degrees


def test_the_gradient_is_that_of_finite_differences():
    x = (0.4 + 0.2 * images(2, 3, 3, 3)).double()
    threat = Color(0.3)

    assert gradcheck(lambda values: threat.render(x, values), threat.random(x, torch.arange(2), 0).requires_grad_())


def test_grey_pictures_are_refused_in_one_line():
    with pytest.raises(UserError, match="The threat color needs images with 3 channels, and these have 1"):
        Color(0.5).check((1, 8, 8))
