import pytest
import torch

from robustkit.tracing.gradcam import cam, overlap, rank_correlation


def test_the_map_by_hand():
    features = torch.tensor([[[[1.0, 2.0], [0.0, 3.0]], [[1.0, 1.0], [4.0, 0.0]]]])
    # Means of the gradients: 2 and -1.
    grad = torch.tensor([[[[4.0, 0.0], [2.0, 2.0]], [[-1.0, -1.0], [-1.0, -1.0]]]])

    assert cam(features, grad).tolist() == [[[1, 3], [0, 6]]]


def test_a_map_does_not_depend_on_other_images():
    features, grad = torch.rand(5, 3, 4, 4), torch.rand(5, 3, 4, 4) - 0.5

    assert torch.equal(cam(features, grad)[2:3], cam(features[2:3], grad[2:3]))


def test_overlap_by_hand():
    one = torch.tensor([[[10.0, 1.6], [1.4, 0.0]], [[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    other = torch.tensor([[[10.0, 0.0], [9.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    value = overlap(one, other)

    assert value[0].item() == pytest.approx(1 / 3)
    assert value[1].item() == 0
    assert value[2].isnan()


def test_rank_correlation_depends_on_order_only_and_ties_have_mean_ranks():
    one = torch.tensor([[[0.0, 1.0], [2.0, 3.0]]])
    tied = torch.tensor([[[0.0, 0.0], [1.0, 1.0]]])

    assert rank_correlation(one, one.exp()).item() == pytest.approx(1)
    assert rank_correlation(one, -one).item() == pytest.approx(-1)
    # Ranks 1 2 3 4 against 1.5 1.5 3.5 3.5.
    assert rank_correlation(one, tied).item() == pytest.approx(4 / (5 * 4) ** 0.5)
    assert rank_correlation(one, torch.zeros(1, 2, 2)).isnan().all()
