"""Generated corruptions: published strengths, closed forms, and pictures that do not depend on each other."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from robustkit.common_corruptions import filters
from robustkit.common_corruptions.draws import Draws, stream_keys
from robustkit.common_corruptions.generate import check_corruption, check_shape
from robustkit.common_corruptions.parameters import NAMES, SEVERITIES, STRENGTHS, strength
from robustkit.common_corruptions.suite import CorruptionLevel, GeneratedSuite, images_of
from robustkit.errors import UserError


def pictures(count: int = 3, channels: int = 3, height: int = 32, width: int = 32) -> torch.Tensor:
    """Smooth 8-bit pictures, some of them dark."""
    coarse = torch.rand(count, channels, 5, 5, generator=torch.Generator().manual_seed(1))
    x = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    return (x * torch.linspace(0.4, 1, count).reshape(-1, 1, 1, 1)).mul(255).round() / 255


def corrupt(x: torch.Tensor, name: str, severity: int, seed: int = 0, ids=None) -> torch.Tensor:
    suite = GeneratedSuite((name,), (severity,), seed)
    return images_of(suite.pictures(CorruptionLevel(name, severity), range(len(x)) if ids is None else ids, x))


def draws(seed: int = 0) -> Draws:
    return Draws(stream_keys(seed, [3], 0, 1))


def grey(level: float, side: int = 64) -> torch.Tensor:
    return torch.full((1, 1, side, side), round(level * 255) / 255)


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_corrupted_alike_alone_and_in_any_order(name):
    x, ids = pictures(), [7, 0, 4]
    together = corrupt(x, name, 3, seed=5, ids=ids)
    backwards = corrupt(x.flip(0), name, 3, seed=5, ids=ids[::-1]).flip(0)
    alone = corrupt(x[1:2], name, 3, seed=5, ids=[0])

    assert torch.equal(together, backwards)
    assert torch.equal(together[1:2], alone)
    assert not torch.equal(together, x)


@pytest.mark.parametrize("name", NAMES)
def test_grey_and_oblong_pictures_keep_their_shape_and_range(name):
    for x in (pictures(1, 1, 28, 28), pictures(1, 3, 24, 40), pictures(1, 1, 8, 8)):
        made = corrupt(x, name, 5)

        assert made.shape == x.shape
        assert made.min() >= 0
        assert made.max() <= 1
        assert torch.equal(made.mul(255).round() / 255, made)


@pytest.mark.parametrize("name", ["gaussian_noise", "snow", "fog", "frost", "elastic_transform"])
def test_noise_differs_with_seed_image_and_severity(name):
    x = pictures(1)
    first = corrupt(x, name, 2, seed=0, ids=[0])

    assert not torch.equal(first, corrupt(x, name, 2, seed=1, ids=[0]))
    assert not torch.equal(first, corrupt(x, name, 2, seed=0, ids=[1]))
    assert not torch.equal(first, corrupt(x, name, 3, seed=0, ids=[0]))


def test_noises_have_the_published_moments():
    x = grey(0.5, 256)
    for severity in SEVERITIES:
        deviation = STRENGTHS["gaussian_noise"].large[severity - 1]
        photons = STRENGTHS["shot_noise"].large[severity - 1]
        share = STRENGTHS["impulse_noise"].large[severity - 1]
        gaussian, shot, impulse = (corrupt(x, f"{kind}_noise", severity) for kind in ("gaussian", "shot", "impulse"))

        inside = (gaussian > 0) & (gaussian < 1)
        cut = torch.distributions.Normal(0.0, 1.0).cdf(torch.tensor(0.5 / deviation)).item()
        assert inside.float().mean() == pytest.approx(2 * cut - 1, abs=0.01)
        # Counts are whole numbers of photons, so their values are multiples of 1 / photons before the cut at white.
        counts = torch.poisson(torch.full((200_000,), 128 / 255 * photons)).div(photons).clamp(max=1)
        assert shot.mean() == pytest.approx(counts.mean().item(), abs=0.01)
        assert shot.std() == pytest.approx(counts.std().item(), rel=0.03)
        assert (impulse == 0).float().mean() == pytest.approx(share / 2, rel=0.1)
        assert (impulse == 1).float().mean() == pytest.approx(share / 2, rel=0.1)


def test_brightness_and_contrast_of_grey_are_their_formulas():
    x = pictures(2, 1)
    levels = x.double() * 255
    brighter, flatter = corrupt(x, "brightness", 2), corrupt(x, "contrast", 3)
    means = levels.mean((2, 3), keepdim=True)

    assert (brighter.double() * 255 - (levels + 25.5).clamp(max=255)).abs().max() <= 1
    assert (flatter.double() * 255 - ((levels - means) * 0.4 + means)).abs().max() <= 1


def test_brightness_keeps_the_ratios_of_the_channels():
    x = torch.tensor([0.4, 0.2, 0.1]).reshape(1, 3, 1, 1).expand(1, 3, 8, 8)
    made = corrupt(x, "brightness", 5)[0, :, 0, 0]

    assert made.tolist() == pytest.approx([0.7, 0.35, 0.175], abs=1.5 / 255)


def test_blurs_and_geometry_leave_a_plain_picture_as_it_is():
    for name in ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "elastic_transform", "pixelate"):
        made = corrupt(grey(0.6), name, 5)

        assert (made - grey(0.6)).abs().max() <= 3.01 / 255  # digits after the point are cut off up to three times


def test_fog_stays_below_the_brightest_pixel():
    x = pictures(3)

    assert (corrupt(x, "fog", 5).amax((1, 2, 3)) <= x.amax((1, 2, 3)) + 1e-6).all()


def test_pixelate_shows_blocks_of_equal_pixels():
    made = corrupt(pictures(1, 1, 224, 224), "pixelate", 5)[0, 0]  # 56 x 56 blocks of 4 x 4

    blocks = made.reshape(56, 4, 56, 4)
    assert (blocks.amax((1, 3)) == blocks.amin((1, 3))).all()


def test_magnification_is_that_of_scipy():
    image = np.random.default_rng(0).random((31, 31, 2))
    for factor in (1.0, 1.07, 1.26, 2.25):
        kept = int(np.ceil(31 / factor))
        start = (31 - kept) // 2
        part = image[start : start + kept, start : start + kept]
        enlarged = ndimage.zoom(part, (factor, factor, 1), order=1)
        skipped = (len(enlarged) - 31) // 2

        assert filters.magnified(image, factor) == pytest.approx(
            enlarged[skipped : skipped + 31, skipped : skipped + 31], abs=1e-9
        )


def test_a_smooth_field_is_blurred_as_scipy_blurs_it():
    rough = draws().between(-1, 1, (12, 20))

    for sigma in (0.4, 2.0, 30.0):
        expected = ndimage.gaussian_filter(rough, sigma, mode="reflect", truncate=3)
        assert filters.smooth_field(draws(), 12, 20, sigma) == pytest.approx(expected, abs=1e-9)


def test_large_and_small_kernels_mirror_the_border_alike():
    image = np.random.default_rng(0).random((20, 17, 1))
    kernel = filters.disk(6, 0.5)

    expected = ndimage.correlate(image[..., 0], kernel, mode="mirror")
    assert filters.convolved(image, kernel)[..., 0] == pytest.approx(expected, abs=1e-9)
    assert kernel.sum() == pytest.approx(1)


def test_motion_spreads_a_point_along_its_direction():
    image = np.zeros((21, 21, 1))
    image[10, 10] = 1
    made = filters.moved(image, 3, 2.0, 0)[..., 0]
    weights = np.exp(-(np.arange(7) ** 2) / 8)

    assert made[10, 4:11][::-1] == pytest.approx(weights / weights.sum())
    assert made.sum() == pytest.approx(1)


def test_strengths_are_the_published_ones_at_32_and_224_pixels_and_lengths_grow_with_the_side():
    assert strength("defocus_blur", 5, 32, 32)[:2] == ((1.5, 0.1), 1.0)
    assert strength("defocus_blur", 5, 224, 224)[:2] == ((10, 0.5), 1.0)
    assert strength("motion_blur", 1, 64, 96)[:2] == ((6, 1), 2.0)
    assert strength("motion_blur", 1, 448, 448)[:2] == ((10, 3), 2.0)
    assert strength("motion_blur", 1, 8, 8)[:2] == ((6, 1), 1.0)


def test_what_cannot_be_corrupted_is_refused_in_one_line():
    for name, severity, word in [("fogg", 1, "fog"), ("fog", 6, "severity")]:
        with pytest.raises(UserError, match=word):
            check_corruption(name, severity)
    for shape, word in [((2, 8, 8), "channels"), ((3, 2, 8), "pixels")]:
        with pytest.raises(UserError, match=word):
            check_shape(shape)
