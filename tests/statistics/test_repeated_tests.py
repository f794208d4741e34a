import numpy as np
import torch

from robustkit.statistics.randomized_smoothing import ABSTAINS, predict
from robustkit.statistics.repeated_tests import leads, spent, stages


def test_draws_double_from_stage_to_stage_up_to_the_most():
    assert stages(1024) == [32, 64, 128, 256, 512, 1024]
    assert stages(100) == [32, 64, 100]
    assert stages(32) == [32]


def test_any_number_of_points_spends_at_most_the_level_of_the_image():
    levels = [spent(0.001, look) for look in range(1, 10_001)]

    assert 0.000999 < sum(levels) <= 0.001
    assert levels == sorted(levels, reverse=True)


def test_equal_votes_do_not_lead_and_a_lone_vote_leads_by_one_deviation():
    assert not leads(10, 10, 1)
    assert leads(1, 0, 1)
    assert not leads(1, 0, 2)
    assert leads(13, 7, 1)


def test_testing_after_every_stage_keeps_to_the_level():
    # Two classes are equally likely, so that every class that is named is a mistake.
    level, ends, random = 0.1, stages(256), np.random.default_rng(0)
    draws = random.integers(0, 2, (400, ends[-1]))
    wrong = np.zeros(len(draws), bool)
    for end in ends:
        ones, row = np.unique(draws[:, :end].sum(1), return_inverse=True)
        votes = torch.tensor(np.stack([end - ones, ones, 0 * ones], 1))
        wrong |= (predict(votes, level / len(ends)) != ABSTAINS).numpy()[row]

    # At most 40 on average, give or take four standard deviations.
    assert wrong.sum() <= 40 + 4 * 6
