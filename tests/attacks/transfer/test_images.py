import torch
from robustkit.attacks.transfer._images import as_images, blurred, dimmed, sampled, shrunk
from torch.nn import functional as F

from tests.problems import images


def test_images_that_are_not_square_are_resized_and_padded_as_by_torch():
    x, share = images(5, 3, 20, 13), torch.tensor([0.92, 0.75, 0.5, 0.33, 0.01])
    ours = shrunk(x, share, torch.full((5,), 0.999), torch.zeros(5))
    for image, result, part in zip(x, ours, share.tolist(), strict=True):
        size = (max(int(20 * part), 1), max(int(13 * part), 1))
        small = F.interpolate(image.unsqueeze(0), size, mode="bilinear", align_corners=False)[0]
        assert torch.allclose(result, F.pad(small, (0, 13 - size[1], 20 - size[0], 0)), atol=1e-5)


def test_an_image_of_full_size_stays_as_it_is():
    x = images(2, 3, 20, 13)

    assert torch.equal(shrunk(x, torch.ones(2), torch.full((2,), 0.9), torch.full((2,), 0.9)), x)


def test_every_padding_is_drawn_whatever_the_size():
    # torchattacks never pads small images above or on the left: its upper bound is left out.
    top = (torch.arange(100) + 0.5) / 100
    moved = shrunk(torch.ones(100, 1, 8, 8), torch.full((100,), 0.8), top, top)
    above = (moved[:, 0].sum(2) == 0).cumprod(1).sum(1)

    assert torch.equal(above.bincount(minlength=3), torch.tensor([33, 34, 33]))


def test_blurring_is_the_convolution_with_a_gaussian_kernel():
    x, place = images(2, 3, 9, 8) - 0.5, torch.linspace(-3, 3, 7)
    weights = torch.exp(-(place**2) / 2)
    kernel = torch.outer(weights, weights) / weights.sum() ** 2
    theirs = F.conv2d(x, kernel.expand(3, 1, 7, 7), padding=3, groups=3)

    assert torch.allclose(blurred(x, 7), theirs, atol=1e-6)


def test_a_place_between_four_pixels_is_their_mean_and_none_outside_of_the_block():
    x, place = torch.tensor([[[[1.0, 2.0], [4.0, 8.0]]]]), torch.full((1, 2, 2), 0.5)
    zero, one = torch.zeros(1, 2, 2), torch.ones(1, 2, 2)

    assert torch.equal(sampled(x, place, place), torch.full((1, 1, 2, 2), 15 / 4))
    assert torch.equal(sampled(x, place, place, (zero, zero, zero, one)), torch.full((1, 1, 2, 2), 3 / 4))


def test_inputs_of_any_shape_are_seen_as_images():
    assert as_images(torch.zeros(2, 5)).shape == (2, 1, 1, 5)
    assert as_images(torch.zeros(2, 5, 4)).shape == (2, 1, 5, 4)
    assert as_images(torch.zeros(2, 3, 5, 4, 6)).shape == (2, 15, 4, 6)


def test_rows_are_halved_their_own_number_of_times():
    halved = dimmed(torch.ones(3, 2), torch.tensor([0, 1, 3]), 3)

    assert torch.equal(halved, torch.tensor([[1.0, 1.0], [0.5, 0.5], [0.125, 0.125]]))
