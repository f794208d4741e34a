import pytest

from robustkit.evaluation.ensemble_fit import misfits
from tests.networks import OneOfThree
from tests.small import data, evaluated, linear


@pytest.mark.parametrize(
    ("names", "randomized", "classes", "word"),
    [
        (["autoattack"], True, 10, "add --attack autoattack-rand"),
        (["autoattack-plus"], True, 10, "add --attack autoattack-rand"),
        (["autoattack-rand"], False, 10, "take --attack autoattack."),
        (["autoattack"], False, 2, "so both are replaced by the margin"),
        (["autoattack"], False, 3, "so it is replaced by the margin"),
    ],
)
def test_an_ensemble_that_is_not_made_for_the_model_is_told(names, randomized, classes, word):
    (sentence,) = misfits(names, randomized=randomized, classes=classes)

    assert word in sentence


@pytest.mark.parametrize(
    ("names", "randomized", "classes"),
    [
        (["autoattack"], False, 4),
        (["autoattack", "autoattack-rand"], True, 10),
        (["autoattack-rand"], True, 10),
        (["default", "pgd"], True, 2),
    ],
)
def test_one_that_is_needs_no_word(names, randomized, classes):
    assert misfits(names, randomized=randomized, classes=classes) == []


def test_a_run_says_it_once():
    run = evaluated(linear(), None, dataset=data(4), attacks="autoattack-rand", eps=["0.3", "0.4"])

    assert sum("take --attack autoattack." in text for text in run.manifest["warnings"]) == 1


def test_rand_on_a_randomized_model_averages_twenty_draws():
    run = evaluated(OneOfThree(linear()), None, dataset=data(2), attacks="autoattack-rand", eps="0.3")
    (row,) = run.results[run.results.role == "ensemble"].itertuples()

    assert row.backwards > 0
    assert row.backwards % 20 == 0
    assert not any("autoattack" in text for text in run.manifest["warnings"])
