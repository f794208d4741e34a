"""The patch: extreme values on linear models, places inside the image, and pixels outside that stay bit for bit."""

import pytest
import torch
from robustkit.attacks import AdversarialPatch
from torch import nn

from robustkit import fit_universal
from robustkit.primitives import noise
from tests.attacks.universal.test_universal import SHAPE, inner_images, two_classes, weights

FIXED = AdversarialPatch(steps=20, batch=4, clip=1e6, size=0.5, row=1, column=2, shape="square")


def keys(count: int) -> torch.Tensor:
    return noise.keys(0, torch.arange(count))


def test_at_a_fixed_place_the_patch_takes_the_extreme_values_of_the_weights_signs():
    fitted = fit_universal(two_classes(weights()), inner_images(), torch.zeros(12).long(), FIXED)

    assert torch.equal(fitted.perturbation, (weights()[:, 1:4, 2:5] > 0).float())


def test_a_target_class_is_painted():
    x, y = inner_images(), torch.zeros(12).long()
    fitted = fit_universal(two_classes(-weights()), x, y, FIXED, target=1)

    assert torch.equal(fitted.perturbation, (weights()[:, 1:4, 2:5] < 0).float())


def test_at_random_places_a_uniform_weight_makes_the_whole_patch_white():
    x, y = inner_images(), torch.zeros(12).long()
    attack = AdversarialPatch(steps=30, batch=4, clip=1e6, size=0.6, smallest=0.5, rotation=0, shape="square")
    fitted = fit_universal(two_classes(0.1 * torch.ones(SHAPE)), x, y, attack)

    assert torch.equal(fitted.perturbation, torch.ones(3, 4, 4))


def test_pixels_outside_of_the_patch_keep_their_bits():
    x = inner_images(40)
    points = AdversarialPatch(size=0.5).apply(torch.full((40, 3, 3, 3), 2.0), x, keys(40))
    changed = (points != x).any(1)

    assert (points[changed.unsqueeze(1).expand_as(x)] == 1).all()
    assert (changed.flatten(1).sum(1) > 0).all()


def test_a_fixed_patch_lies_where_row_and_column_say():
    x = inner_images(2)
    patch = torch.rand(3, 3, 3, generator=torch.Generator().manual_seed(1))
    points = FIXED.apply(patch.expand(2, 3, 3, 3), x, keys(2))

    assert torch.equal(points[:, :, 1:4, 2:5], patch.expand(2, 3, 3, 3))
    points[:, :, 1:4, 2:5] = x[:, :, 1:4, 2:5]
    assert torch.equal(points, x)


@pytest.mark.parametrize("shape", ["circle", "square"])
def test_a_patch_lies_wholly_inside_the_image_and_has_its_area(shape):
    x = torch.zeros(200, 1, 60, 50)
    attack = AdversarialPatch(size=0.5, smallest=0.4, rotation=180, shape=shape)
    area = attack.apply(torch.ones(200, 1, 25, 25), x, keys(200)).sum((1, 2, 3)) / 50**2
    full = torch.pi / 4 if shape == "circle" else 1

    assert area.min() > 0.97 * full * 0.4**2
    assert area.max() < 1.03 * full * 0.5**2
    assert area.mean() == pytest.approx(full * (0.5**3 - 0.4**3) / (3 * 0.1), rel=0.03)


def test_an_unrotated_patch_of_its_own_size_is_not_resampled():
    patch = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    attack = AdversarialPatch(size=1, smallest=1, rotation=0, shape="square")
    points = attack.apply(patch, torch.zeros(1, 1, 4, 4), keys(1))

    assert torch.allclose(points, patch, atol=1e-6)


def test_a_quarter_turn_turns_the_patch():
    class Turned(AdversarialPatch):
        def _places(self, key, x):
            return [place._replace(turn=torch.pi / 2) for place in super()._places(key, x)]

    patch = torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(2))
    attack = Turned(size=1, smallest=1, rotation=0, shape="square")
    points = attack.apply(patch, torch.zeros(1, 1, 4, 4), keys(1))

    assert torch.allclose(points, patch.rot90(-1, (2, 3)), atol=1e-5)


def test_places_depend_on_the_key_alone():
    x = inner_images(9)
    patches = torch.rand(9, 3, 3, 3, generator=torch.Generator().manual_seed(3))
    attack = AdversarialPatch(size=0.5)
    together = attack.apply(patches, x, keys(9))
    alone = torch.cat([attack.apply(patches[n : n + 1], x[n : n + 1], keys(9)[n : n + 1]) for n in range(9)])

    assert torch.equal(together, alone)


def test_the_share_of_places_is_a_mean_over_places():
    class Corner(nn.Module):
        """Class 1 where the upper left pixel is bright."""

        def forward(self, x):
            bright = x[:, :, 0, 0].mean(1) - 0.9
            return torch.stack([-bright, bright], 1)

    x, y = inner_images(12), torch.zeros(12).long()
    attack = AdversarialPatch(steps=30, draws=8, size=0.5, smallest=0.5, rotation=0, shape="square", clip=1e6)
    judged = fit_universal(Corner(), x, y, attack).judge(Corner(), x, y, places=40)
    intervals = judged.intervals.placed_success_rate

    assert 0 < judged.placed_success_rate < 0.5
    assert intervals.low < judged.placed_success_rate < intervals.high
