"""What votes of noisy copies prove, against closed forms."""

from statistics import NormalDist

import pytest
import torch
from scipy.stats import binom

from robustkit.errors import UserError
from robustkit.statistics.randomized_smoothing import (
    ABSTAINS,
    Certified,
    certified_radius,
    certify,
    fewest_copies,
    largest_radius,
    lower_bound,
    predict,
)


@pytest.mark.parametrize("truth", [0.55, 0.8, 0.97])
def test_bounds_are_wrong_no_more_often_than_alpha(truth):
    counts = range(51)
    too_high = [lower_bound(count, 50, 0.1) > truth for count in counts]

    assert binom.pmf(counts, 50, truth) @ too_high <= 0.1


def test_copies_that_all_agree_bound_the_probability_by_the_nth_root():
    assert lower_bound(100, 100, 0.001) == pytest.approx(0.001 ** (1 / 100))
    assert lower_bound(0, 100, 0.001) == 0


@pytest.mark.parametrize("alpha", [0.001, 0.05, 0.25])
def test_one_copy_less_than_the_fewest_certifies_nothing(alpha):
    n = fewest_copies(alpha)

    assert largest_radius(0.5, n, alpha) > 0
    assert largest_radius(0.5, n - 1, alpha) == 0


def test_a_prediction_is_wrong_no_more_often_than_alpha_where_two_classes_are_equally_likely():
    counts = torch.arange(102)
    votes = torch.stack([counts, 101 - counts, torch.zeros(102, dtype=torch.int64)], 1)

    assert 0 < binom.pmf(counts, 101, 0.5) @ (predict(votes, 0.1) != ABSTAINS).numpy() <= 0.1


def test_a_prediction_is_the_class_with_most_votes():
    votes = torch.tensor([[0, 3, 97], [90, 5, 5], [40, 60, 0], [0, 0, 100]])

    assert predict(votes, 0.001).tolist() == [2, 0, ABSTAINS, 2]


def test_the_class_is_chosen_by_some_copies_and_bounded_by_others():
    selection, estimation = torch.tensor([[8, 2], [8, 2], [2, 8]]), torch.tensor([[990, 10], [10, 990], [300, 700]])

    found = certify(selection, estimation, sigma=0.3, n=1000, alpha=0.001, values=12)

    bounds = [lower_bound(count, 1000, 0.001) for count in (990, 10, 700)]
    assert found.prediction.tolist() == [0, ABSTAINS, 1]
    assert found.probability.tolist() == bounds
    assert found.radius.tolist() == [0.3 * NormalDist().inv_cdf(bounds[0]), 0, 0.3 * NormalDist().inv_cdf(bounds[2])]


def test_half_of_the_copies_certify_nothing():
    assert certified_radius(0.5, 0.3) == 0
    assert certified_radius(NormalDist().cdf(2), 0.3) == pytest.approx(0.6)


def test_radii_in_other_norms_fit_into_the_l2_ball():
    found = Certified(torch.tensor([1, 0, 1]), torch.tensor([0.6, 0.3, 0.0]).double(), torch.zeros(3).double(), 64)
    y = torch.tensor([1, 1, 1])

    assert found.radius_in("Linf").tolist() == pytest.approx([0.075, 0.0375, 0])
    assert found.accuracy(y, 0.5) == pytest.approx(1 / 3)
    assert found.accuracy(y, 0.08, "Linf") == 0
    assert found.accuracy(y, 0.07, "Linf") == pytest.approx(1 / 3)
    with pytest.raises(UserError, match="L0"):
        found.radius_in("L0")
