from itertools import pairwise

import pytest
import torch
from robustkit.attacks import GeoDA
from torch import nn

from tests.attacks.decision.driven import aimed, driven
from tests.attacks.linear import linear


def test_in_l1_few_values_change():
    made = linear(2)
    state = driven(GeoDA(0.1, "L1", queries=150, frequencies=1.0), made.model, aimed(made.x, made.y))
    changed = (state.nearest != made.x).sum(1)

    assert changed.float().median() == 1


def half_plane() -> nn.Module:
    """Class 1 where the two values add up to more than 1.8."""
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        layer.bias.copy_(torch.tensor([1.8, 0.0]))
    return layer


@pytest.mark.parametrize(("norm", "distance"), [("L2", 0.1**0.5), ("Linf", 0.3), ("L1", 0.4)])
def test_where_the_box_stops_one_value_the_other_makes_up_for_it(norm, distance):
    x = torch.tensor([[0.9, 0.5]]).repeat(2, 1)
    state = driven(GeoDA(0.1, norm, queries=140, frequencies=1.0), half_plane(), aimed(x, torch.zeros(2).long()))

    assert state.distance.tolist() == pytest.approx([distance] * 2, rel=0.01)


def test_later_estimates_take_more_samples_within_the_budget():
    samples = GeoDA(0.1, "L2", queries=2000)._samples

    # By hand: 2000 - 25 * 7 queries for 7 estimates whose weights add up to 24.23.
    assert samples[0] == 75
    assert [round(later / first, 1) for first, later in pairwise(samples)] == [1.4] * (len(samples) - 1)
    assert abs(sum(samples) + 25 * len(samples) - 2000) <= len(samples)


def test_the_smallest_budget_has_a_schedule():
    assert GeoDA(0.1, "L2", queries=2)._samples == [1]


def test_an_estimate_points_to_the_errors():
    made = linear(2)
    method = GeoDA(0.1, "L2", queries=120, frequencies=1.0)
    state = driven(method, made.model, aimed(made.x, made.y))
    weight = made.model[0].weight
    outward = torch.where((made.y == 0).unsqueeze(1), weight[1] - weight[0], weight[0] - weight[1])

    assert torch.cosine_similarity(state.normal, outward).median() > 0.75


def test_images_near_the_boundary_end_as_near_to_it_as_others():
    # With bisections no finer for them, all samples of the first estimate were on one side of the boundary, and some
    # images ended at three times their distance.
    made = linear(2)
    near = made.distance["L2"].argsort()[:8]
    x, y, distance = made.x[near], made.y[near], made.distance["L2"][near]
    state = driven(GeoDA(0.1, "L2", queries=300, frequencies=1.0), made.model, aimed(x, y))

    assert (state.distance < 1.5 * distance).all()
