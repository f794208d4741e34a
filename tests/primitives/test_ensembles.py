import pytest
from robustkit.attacks import APGD, FAB, Square

from robustkit.primitives.ensembles import is_ensemble, members, name_of, names, stages
from robustkit.primitives.registry import build, parsed
from robustkit.primitives.stage import Limits, Stage, Threshold

NORMS = ["Linf", "L2", "L1"]


def built(name, norm):
    return [build(text, norm, "0.5") for text in members(name, norm)]


def kind(stage: Stage) -> str:
    return parsed(stage.specification)[0]


def published(norm, restarts, targets):
    return [
        APGD("0.5", norm, steps=100, restarts=restarts),
        APGD("0.5", norm, steps=100, loss="dlr", targets=targets),
        FAB("0.5", norm, steps=100, targets=9),
        Square("0.5", norm, queries=5000, p_init=0.8, shrink_over=10_000),
    ]


RACES_IN_LINF_ONLY = [("rk-13", "L2"), ("rk-13", "L1"), ("rk-14", "L1")]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("norm", ["L2", "L1"])
def test_a_member_has_one_name_in_all_norms(name, norm):
    usual, here = stages(name, "Linf"), stages(name, norm)

    others = [one.label for one, other in zip(usual, here, strict=True) if kind(one) != kind(other)]
    # In Linf the third of these is a race, which knows no L1.
    assert others == (["third"] if (name_of(name), norm) in RACES_IN_LINF_ONLY else [])
    assert [each.label for each in here] == [each.label for each in usual]
    assert len({each.label for each in usual}) == len(usual)


@pytest.mark.parametrize(("norm", "restarts", "targets"), [("Linf", 1, 9), ("L2", 1, 9), ("L1", 5, 5)])
def test_autoattack_has_the_published_budgets(norm, restarts, targets):
    # autoattack.py of fra31/auto-attack, set_version("standard").
    assert built("autoattack", norm) == published(norm, restarts, targets)


@pytest.mark.parametrize("norm", NORMS)
def test_plus_has_the_published_budgets(norm):
    # set_version("plus"): FAB-T has one restart, because the code sets it back before it runs.
    ce, targeted, fab_t, square = published(norm, 5, 9)
    assert built("autoattack-plus", norm) == [
        ce,
        APGD("0.5", norm, steps=100, restarts=5, loss="dlr"),
        FAB("0.5", norm, steps=100, restarts=5),
        square,
        targeted,
        fab_t,
    ]


@pytest.mark.parametrize("norm", NORMS)
def test_rand_is_apgd_on_two_losses(norm):
    assert built("autoattack-rand", norm) == [
        APGD("0.5", norm, steps=100),
        APGD("0.5", norm, steps=100, loss="dlr"),
    ]


def test_an_ensemble_is_named_in_any_case():
    assert is_ensemble(" AutoAttack ")
    assert not is_ensemble("apgd-t")
    assert members("AutoAttack", "L1") == members("autoattack", "L1")


@pytest.mark.parametrize(
    ("obtained", "limit"),
    [(2.0, 1.0), (0.5, 1.0), (0.49, 0.6), (-1.0, 0.6), (-1.01, 1.1)],
    ids=["all of it", "a quarter", "less", "half as much is lost", "more is lost"],
)
def test_limits_follow_what_a_gradient_that_predicts_2_obtains(obtained, limit):
    assert Limits(1.0, 0.6, 1.1).at(2.0, obtained) == limit


def test_an_image_whose_gradient_backfires_is_as_if_bent_where_no_limit_is_given():
    assert Limits(1.0, 0.6).at(2.0, -3.0) == 0.6


@pytest.mark.parametrize(
    ("ratio", "at_clean", "reached"),
    [(0.9, 1.5, True), (1.1, 1.5, False), (1.9, 1.3, True), (2.1, 1.3, False), (0.1, 2.0, False), (0.0, 9.0, True)],
    ids=["near", "farther", "close when clean", "too far from there", "far when clean", "a gradient that lies"],
)
def test_the_clean_image_moves_the_limit(ratio, at_clean, reached):
    threshold = Threshold(Limits(1.0, 1.0), close=1.4, if_close=Limits(2.0, 2.0), far=2.0)

    assert threshold.reaches(ratio, at_clean, 2.0, 2.0) == reached
