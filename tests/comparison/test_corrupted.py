"""Corrupted images in comparisons and gates: the same pictures, each image once."""

from dataclasses import replace

import pytest

from robustkit import UserError, compare, gate
from robustkit.comparison.conditions import condition
from tests.small import cnn, data, evaluated, linear

ASKED = {"corruptions": ["contrast", "impulse_noise"], "severities": [1, 3, 5], "attacks": ()}


def run_of(model, name, **request):
    return evaluated([model], None, names=[name], **{"dataset": data(40), **ASKED, **request})


@pytest.fixture(scope="module")
def one():
    return run_of(linear(), "linear", corruption_baseline="linear")


@pytest.fixture(scope="module")
def other():
    return run_of(cnn(), "cnn")


def mean(run, name="all"):
    return float(run.corruptions.set_index("corruption").accuracy[name])


def test_differences_are_those_of_the_means_of_each_corruption_and_of_all(one, other):
    pairs = compare(one, other).corruptions.set_index("corruption")

    assert list(pairs.index) == ["impulse_noise", "contrast", "all"]
    for name, row in pairs.iterrows():
        assert row.difference == pytest.approx(mean(one, name) - mean(other, name))
        assert row.ci_low < row.difference < row.ci_high
        assert row.p <= row.p_holm


def test_a_model_is_not_told_apart_from_itself(one):
    pairs = compare(one, one).corruptions

    assert set(pairs["verdict"]) == {"no significant difference"}
    assert (pairs["difference"] == 0).all()


@pytest.mark.parametrize(
    ("changes", "why"), [({"seed": 1}, "other images"), ({"severities": [1]}, "other corruptions or severities")]
)
def test_other_corrupted_images_are_not_compared(changes, why, one):
    others = run_of(cnn(), "cnn", **changes)

    assert compare(one, others).corruptions.empty
    assert any(why in note for note in compare(one, others).notes)
    with pytest.raises(UserError, match=why):
        gate(one, baseline=run_of(linear(), "linear", **changes))


def test_a_gate_compares_the_mean_over_all_or_over_one_corruption(one):
    least = mean(one)

    assert gate(one, fail_under=f"corruptions>={least - 1e-9}").passed
    assert not gate(one, fail_under=f"corruptions>={least + 1e-9}").passed
    assert not gate(one, fail_under=f"corruptions>={least}", judged_by="low").passed
    assert gate(one, fail_under=f"corruptions@contrast >= {100 * mean(one, 'contrast') - 1e-6} %").passed
    assert gate(one, fail_under=["mCE<=1", "mCE<=100%", "clean>=0.1"]).passed
    assert not gate(one, fail_under="mCE<=0.99").passed


@pytest.mark.parametrize("asked", ["corruptions@fog>=0.1", "Linf@0.1>=0.1", "union>=0.1"])
def test_what_the_run_does_not_have_is_an_error(asked, one):
    with pytest.raises(UserError, match="The run has no"):
        gate(one, fail_under=asked)


def test_mce_without_a_baseline_and_corruptions_that_nobody_judged_are_errors(other):
    plain = evaluated(linear(), None, dataset=data(8), attacks="fgsm", eps="0.1")

    with pytest.raises(UserError, match="--corruption-baseline"):
        gate(other, fail_under="mCE<=1")
    with pytest.raises(UserError, match="--corruptions"):
        gate(plain, fail_under="corruptions>=0.5")


@pytest.mark.parametrize("text", ["corruptions", "corruptions<=0.5", "corruptions>=1.5", "mCE>=1", "mCE<=x", "mCE<=-1"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(UserError):
        condition(text)


def test_a_drop_on_corrupted_images_fails_if_it_is_too_large_and_no_luck(one):
    worse = linear()
    worse[-1].weight.data[:] = 0  # always the same class
    checks = {check.threat: check.passed for check in gate(run_of(worse, "linear"), baseline=one).checks}

    assert checks == {"clean": False, "corruptions": False}
    assert gate(one, baseline=run_of(worse, "linear")).passed
    assert gate(one, baseline=one).passed


def test_a_baseline_that_makes_no_error_is_said_to_be_the_cause_of_a_missing_mce():
    """The error told the user to name a baseline, which the run had."""
    images = data(40)
    right = cnn()(images[0]).argmax(1) == images[1]
    run = run_of(cnn(), "cnn", dataset=(images[0][right][:4], images[1][right][:4]), corruption_baseline="cnn",
                 severities=[1], corruptions=["jpeg_compression"])  # fmt: skip

    assert run.corruptions["error"].iloc[0] == 0
    with pytest.raises(UserError, match="its baseline cnn makes no error on any of the corruptions"):
        gate(run, fail_under="mCE<=1")


def test_a_mean_at_the_bound_missed_it_by_a_rounding_error(one):
    """27 of the 45 versions of 9 images, 5.4 / 9, are 0.6 and were less."""
    run = replace(one, corruptions=one.corruptions.assign(accuracy=27 / 5 / 9, ce=0.1 + 0.2))

    assert gate(run, fail_under=["corruptions>=0.6", "mCE<=0.3"]).passed


def test_a_larger_mce_looked_like_the_bound(one):
    """90.0 "is above 90", it said."""
    run = replace(one, corruptions=one.corruptions.assign(ce=0.9003))

    assert gate(run, fail_under="mCE<=0.9").checks[0].reason.startswith("90.03 against linear (n=40) is above 90;")


def test_smaller_drops_failed_on_corrupted_images_than_a_gate_called_possible(one):
    """It said that only a drop of 15 points or more can fail, and let one of 5 fail."""
    before = one.corrupted
    less = (before["corruption"] != "-") & (before["correct"] > 0)
    after = before.assign(correct=before["correct"] - less.to_numpy().astype(int) * (before["sample"] % 5 == 0))
    judged = gate(replace(one, corrupted=after), baseline=one)

    assert [check.threat for check in judged.checks if not check.passed] == ["corruptions"]
    assert judged.note.startswith("With 40 images, clean or under attack, only a drop of 15 points or more can fail")
