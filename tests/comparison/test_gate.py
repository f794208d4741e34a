"""A gate fails for what is too low, or has really dropped, and for nothing else."""

import sqlite3
from functools import cache
from xml.etree import ElementTree as ET

import pytest

from robustkit import UserError, compare, evaluate, gate
from robustkit.comparison.conditions import condition, share
from robustkit.comparison.gate_check import percent_beside, share_in_words
from robustkit.comparison.junit import junit
from tests.comparison.test_compare import Remembering, run_of
from tests.networks import Constant, switched_off
from tests.small import cnn, data, linear


@cache
def remembering(left):
    """A run of a model that is right for the first images of 60, under attack, too."""
    return run_of(Remembering(range(left)))


def test_the_measured_accuracy_is_compared():
    run = remembering(30)

    assert gate(run, fail_under="Linf@0.02>=0.5").passed
    assert not gate(run, fail_under="Linf@1/50>=50.1%").passed
    assert gate(run, fail_under=["clean>=1/2", "Linf@0.02>=0"]).passed


def test_without_a_condition_those_that_the_run_declared_are_checked():
    run = run_of(Remembering(range(30)), declared=["Linf@0.02>=0.6", "clean>=0.5"])

    assert [(each.threat, each.passed) for each in gate(run).checks] == [("Linf 0.02", False), ("clean", True)]
    assert gate(run, fail_under="clean>=0").passed
    assert gate(run, baseline=run).passed


def test_a_threshold_is_printed_in_all_its_digits():
    """50.0 % "is below 50 %", it said."""
    (check,) = gate(remembering(30), fail_under="Linf@0.02>=0.5000001").checks

    assert check.reason.endswith("is below 50.00001 %")


def test_the_lower_end_of_the_interval_asks_for_more():
    run = remembering(30)

    assert not gate(run, fail_under="Linf@0.02>=0.5", judged_by="low").passed
    assert gate(run, fail_under="Linf@0.02>=0.6", judged_by="high").passed


@pytest.mark.parametrize(
    ("left", "most", "passed"), [(60, 0, True), (59, 0, True), (50, 0, False), (50, "0.2", True), (30, "20%", False)]
)
def test_a_drop_fails_if_it_is_too_large_and_no_luck(left, most, passed):
    now, then = remembering(left), remembering(60)

    # One image of 60 may be luck (p = 1/2); ten are not (p = 1/1024).
    assert gate(now, baseline=then, max_drop=most).passed is passed


def test_a_baseline_with_rejections_says_nothing_about_a_run_without():
    """The same model "dropped" by 40 points, or passed a gate that it would not."""
    then = run_of(switched_off(linear(), 9), count=10, rejects=True)

    with pytest.raises(UserError, match="evaluated with --rejects, this run without"):
        gate(run_of(linear(), count=10), baseline=then)


def test_a_gate_says_which_drops_are_too_small_to_fail():
    # A gate on 20 images passed at -25 points without a word.
    then = remembering(60)
    five, six = (gate(remembering(left), baseline=then) for left in (55, 54))

    assert five.passed
    assert not six.passed
    assert "With 60 images only a drop of 10 points or more can fail" in five.note
    assert "With 60 images" not in gate(then, baseline=then, max_drop=0.1).note


def test_a_rise_passes():
    assert gate(remembering(60), baseline=remembering(30)).passed


def test_a_result_that_the_run_calls_unreliable_does_not_pass():
    run = run_of(Constant(3))

    assert not gate(run, fail_under="clean>=0").passed
    assert gate(run, fail_under="clean>=0", allow_unreliable=True).passed


def test_a_run_without_its_checks_passes_with_a_note():
    switched_off = gate(run_of(Remembering(range(30)), checks="none"), fail_under="clean>=0")

    assert switched_off.passed
    assert "switched off" in switched_off.note
    assert "switched off" in junit(switched_off)
    assert gate(remembering(30), fail_under="clean>=0").note == ""


def test_models_are_matched_by_name_with_those_of_the_baseline():
    then = run_of([Remembering(range(60)), Remembering(range(30))], names=["one", "two"])
    now = run_of([Remembering(range(30)), Remembering(range(30))], names=["two", "one"])
    failed = {check.model for check in gate(now, baseline=then).checks if not check.passed}

    assert failed == {"one"}


def test_junit_has_a_case_for_each_check_and_is_well_formed():
    run = run_of([Remembering(range(60)), Remembering(range(30))], names=["<good>&\x07", "bad"])
    suite = ET.fromstring(junit(gate(run, fail_under=["Linf@0.02>=0.9", "clean>=0.9"])))

    assert (suite.get("tests"), suite.get("failures")) == ("4", "2")
    assert {case.get("classname") for case in suite if len(case)} == {"bad"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "something to check"),
        ({"fail_under": "Linf@0.5>=0.4"}, "no result for"),
        ({"fail_under": "L3@0.5>=0.4"}, "norm"),
        ({"fail_under": "Linf@minimum>=0.4"}, "no radius"),
        ({"fail_under": "Linf@0.02>0.4"}, "not a condition"),
        ({"fail_under": "Linf@0.02>=40"}, "from 0 to 1"),
        ({"fail_under": "clean>=x"}, "not a share"),
        ({"fail_under": "clean>=0.5", "judged_by": "middle"}, "way to judge"),
        ({"fail_under": 3}, "fail_under"),
        ({"fail_under": "clean>=0", "max_drop": "abc"}, "not a share"),  # passed, as did the next one
        ({"fail_under": "clean>=0", "max_drop": "0.02"}, "--baseline"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_gate_that_cannot_be_read_is_one_sentence(settings, words):
    with pytest.raises(UserError, match=words) as error:
        gate(run_of(linear(), count=10), **settings)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"attacks": "noise:queries=5"}, "attacked by"),
        ({"eps": "0.03"}, "no result for Linf 0.03, which the baseline has"),
        ({"eps": ["0.02", "0.03"]}, "no result for Linf 0.03, which the baseline has"),  # passed on 0.02 alone
        ({"corruptions": "generated"}, "corrupted images and this run was not"),
    ],
    ids=["attacks", "radius", "more radii", "corruptions"],
)
def test_a_baseline_that_was_measured_in_another_way_is_refused(other, words):
    with pytest.raises(UserError, match=words):
        gate(run_of(linear(), count=10), baseline=run_of(cnn(), count=10, **other))


def test_a_way_to_judge_that_a_baseline_does_not_use_is_refused():
    run = run_of(linear(), count=10)

    with pytest.raises(UserError, match="--fail-under"):
        gate(run, baseline=run, judged_by="low")
    assert gate(run, baseline=run, judged_by="low", fail_under="clean>=0").passed


def test_a_baseline_on_other_images_is_refused():
    x, y = data(20)
    other = evaluate(linear(), dataset=(x.flip(0), y.flip(0)), attacks="noise:queries=2", eps="0.02")
    with pytest.raises(UserError, match="different images"):
        gate(run_of(linear(), count=20), baseline=other)


def test_a_baseline_on_fewer_images_is_compared_on_those_and_says_so():
    few, many = run_of(linear(), count=10), run_of(linear(), count=20)
    reasons = [check.reason for check in gate(many, baseline=few).checks]

    assert len(reasons) == 2
    assert all("n=10, of which only the labels could be compared" in each for each in reasons)
    assert not any("labels" in check.reason for check in gate(many, baseline=many).checks)


def test_a_baseline_on_changed_pixels_of_the_same_labels_is_refused():
    """As many images of one name with the same labels were taken for the same ones, and the gate passed or failed."""
    x, y = data(20)
    other = evaluate(linear(), dataset=(x / 2, y), attacks="noise:queries=2", eps="0.02")

    with pytest.raises(UserError, match="different images"):
        gate(run_of(linear(), count=20), baseline=other)


@pytest.mark.parametrize(
    ("text", "value"), [("0.4", 0.4), ("40%", 0.4), ("2/5", 0.4), ("0", 0), ("1", 1), ("100 %", 1)]
)
def test_shares_are_read_as_people_write_them(text, value):
    assert share(text) == value
    assert condition(f" Linf@8/255 >= {text} ").least == value


def test_a_run_whose_broken_images_were_deleted_is_neither_passed_nor_compared(tmp_path):
    evaluate([linear(), cnn()], dataset=data(20), attacks="fgsm", eps="0.1", out=tmp_path)
    with sqlite3.connect(tmp_path / "run.sqlite") as connection:
        connection.execute("DELETE FROM attacked WHERE success = 1")
        connection.execute("DELETE FROM picture")
        connection.execute("DELETE FROM confidence")
    connection.close()

    for judged in (lambda: gate(tmp_path, fail_under="Linf@0.1>=0.5"), lambda: compare(tmp_path)):
        with pytest.raises(UserError, match=r"^The run .* is marked as finished, but lacks verdicts; "):
            judged()


@pytest.mark.parametrize(
    ("value", "bound", "text"),
    [
        (0.6875, 0.688, "68.75 %"),
        (0.6875, 0.6875, "68.8 %"),
        (0.5, 0.688, "50.0 %"),
        (40 / 69, 0.58, "57.97 %"),
        (2 / 3, 0.6667, "66.667 %"),
    ],
)
def test_a_share_does_not_look_like_a_bound_that_it_misses(value, bound, text):
    assert share_in_words(value, 0.5, 0.8, "n=48", bound).startswith(text)


def test_a_percentage_with_a_decimal_was_another_number_than_the_share():
    """37.9 % became 0.37899999999999995, and 44.1 % more than 441 of 1,000."""
    for tenths in range(1001):
        assert share(f"{tenths / 10} %") == tenths / 1000
    assert condition("mCE<=33.3%").bound == 0.333


def test_the_end_of_an_interval_looked_like_the_bound_that_it_misses():
    """40.0 % "is below 40 %, judged by the lower end", it said."""
    assert share_in_words(0.5, 0.3996, 0.6, "n=48", 0.4, "low") == "50.0 % (95 %: 39.96 to 60.0 %, n=48)"


def test_a_drop_looked_like_the_one_that_is_accepted():
    assert percent_beside(-0.0204, -0.02) == "-2.04"
    assert percent_beside(-0.02, -0.02) == "-2.0"
