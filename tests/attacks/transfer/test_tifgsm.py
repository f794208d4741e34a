import pytest
import torch
from robustkit.attacks import TIFGSM
from torch.nn import functional as F

from tests.attacks.transfer.copies import driven, followed, gradient, small
from tests.problems import images


def test_it_follows_convolved_gradients():
    made = small(1, 9, 8)
    weights = torch.exp(-(torch.linspace(-3, 3, 5) ** 2) / 2)
    kernel = (torch.outer(weights, weights) / weights.sum() ** 2).expand(1, 1, 5, 5)
    at = gradient(made)
    point = followed(made.x, lambda step, point, velocity: F.conv2d(at(point), kernel, padding=2), 0.1)

    assert torch.allclose(driven(TIFGSM(0.1, kernel=5, steps=3, loss="ce"), made), point, atol=1e-6)


@pytest.mark.parametrize(("side", "kernel"), [(8, 3), (32, 3), (64, 5), (112, 7), (224, 15), (299, 15)])
def test_the_usual_kernel_grows_with_the_image_up_to_the_papers(side, kernel):
    grad = images(1, 1, side, 4) - 0.5

    assert torch.equal(TIFGSM(0.1).blurred(grad), TIFGSM(0.1, kernel=kernel).blurred(grad))
