from itertools import permutations

import pytest
import torch
from torch import Tensor

from robustkit.tracing.cka import cka, gram


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_definition(k: Tensor, other: Tensor) -> float:
    """HSIC as a mean over all choices of four different images, straight from its definition."""
    n = len(k)
    total = sum(
        k[i, j] * other[i, j] + k[i, j] * other[q, r] - 2 * k[i, j] * other[i, q]
        for i, j, q, r in permutations(range(n), 4)
    )
    return float(total) / (n * (n - 1) * (n - 2) * (n - 3))


def test_hsic_is_the_mean_over_all_choices_of_four_images():
    k, other = gram(normal(7, 3)), gram(normal(7, 5, seed=1) ** 2)
    hsic = by_definition(k, other) / (by_definition(k, k) * by_definition(other, other)) ** 0.5

    assert cka(k, other) == pytest.approx(hsic, rel=1e-10)


def test_the_common_mean_of_the_features_changes_nothing():
    features, other = normal(8, 4) + 3, gram(normal(8, 4, seed=1))

    assert cka(features @ features.T, other) == pytest.approx(cka(gram(features), other), rel=1e-9)


def test_the_cka_of_features_with_themselves_is_one():
    k = gram(normal(6, 10))

    assert cka(k, k.clone()) == 1


@pytest.mark.parametrize("scale", [1e-3, 1, 50])
def test_cka_does_not_depend_on_rotations_or_scales(scale):
    features = normal(12, 6)
    turned = scale * features @ torch.linalg.qr(normal(6, 6, seed=1)).Q

    assert cka(gram(features), gram(turned)) == pytest.approx(1, abs=1e-9)


def test_a_map_that_is_no_rotation_reduces_cka():
    features = normal(12, 6)

    assert cka(gram(features), gram(features * torch.tensor([9.0, 1, 1, 1, 1, 1]))) < 0.9


def test_unrelated_features_have_no_similarity_on_average():
    # 20 images of 200 features: the plug-in estimate of the same 200 pairs has a mean of 0.91.
    values = torch.tensor(
        [cka(gram(normal(20, 200, seed=i)), gram(normal(20, 200, seed=1000 + i))) for i in range(200)]
    )

    assert abs(values.mean()) < 4 * values.std() / 200**0.5
    assert values.std() < 0.1


def test_cka_does_not_depend_on_the_order_of_the_images():
    a, b = normal(9, 4), normal(9, 4, seed=1)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))

    assert cka(gram(a), gram(b)) == pytest.approx(cka(gram(a[order]), gram(b[order])), rel=1e-10)


def test_the_gram_matrix_may_be_summed_over_parts_of_the_features():
    features = normal(5, 9)

    assert torch.allclose(gram(features[:, :4]) + gram(features[:, 4:]), gram(features))


def test_three_images_or_equal_features_have_no_cka():
    k = gram(normal(3, 4))
    flat = gram(torch.ones(6, 4))

    assert torch.tensor([cka(k, k), cka(flat, flat), cka(flat, gram(normal(6, 4)))]).isnan().all()
