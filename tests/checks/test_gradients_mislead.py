"""What is counted of steps from clean images, and of which images."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.check import Finding
from robustkit.checks.facts import RunThreat
from robustkit.checks.gradients_mislead import followed, judge
from robustkit.evidence.rows import NO_RANDOM_STEP, NearnessRecord
from tests.checks.facts import facts

ERRS, CROOKED, RIGHT, LOST = (1.2, 0.1), (1.2, 0.9), (0.2, 0.1), (0.0, 0.0)
HERE = RunThreat("Linf", "0.1")


def rows(*steps: tuple[float, float]) -> list[NearnessRecord]:
    return [
        NearnessRecord("m", "Linf", "0.1", "rk-14/first", number, 1.5, "3", 1.0, 0.9, 0.0, 0.0, 0.9, 0.9, 0.0, *step)
        for number, step in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("steps", "misled"),
    [
        ([ERRS] * 3 + [RIGHT] * 20, 3),
        ([ERRS] * 3 + [CROOKED] * 2 + [RIGHT] * 20, 3),
        ([ERRS] * 3 + [CROOKED] * 3 + [RIGHT] * 20, 0),  # of a network whose logits are rounded
        ([ERRS] + [RIGHT] * 20, 0),
        ([NO_RANDOM_STEP] * 20, 0),
    ],
    ids=["errs", "fewer crooked", "as many crooked", "one image", "an older ensemble"],
)
def test_errors_count_if_they_outnumber_what_rounding_and_kinks_do(steps, misled):
    assert len(followed(facts(nearness=rows(*steps)))[HERE].misled) == misled


@pytest.mark.parametrize(("steps", "told"), [([LOST] * 11 + [RIGHT] * 10, True), ([LOST] * 10 + [RIGHT] * 11, False)])
def test_that_most_steps_say_nothing_is_told(steps, told):
    (finding,) = judge(facts(nearness=rows(*steps)))

    assert finding.status == "ok"
    assert ("On 11 images the small random steps were too small" in finding.text) == told


SMALL = (0.5, 0.05)


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([SMALL] * 20, "failed"),
        ([SMALL] * 19 + [LOST] * 20, "ok"),
        ([(0.5, 0.4)] * 20, "ok"),  # kinks
        ([(0.24, 0.0)] * 20, "ok"),
        ([(50.0, 0.0)] + [(0.0, 0.01)] * 79, "ok"),  # one image
        ([NO_RANDOM_STEP] * 20, "ok"),
    ],
    ids=["a part is wrong", "too few images", "kinks", "small", "one image", "an older ensemble"],
)
def test_errors_too_small_to_show_on_one_image_show_on_many(steps, status):
    """Gradients reversed where they are smallest left 87 % for Square's 77 %, without a word."""
    (finding,) = judge(facts(nearness=rows(*steps)))

    assert (finding.status, finding.images) == (status, ())
    assert (
        ("Over all images together" in finding.text)
        == ("by 50 % of its usual size" in finding.text)
        == (status == "failed")
    )


def test_a_layer_that_has_a_replacement_already_is_not_looked_for_again():
    """After --bpda, as diagnose prescribed it, the run only recommended diagnose."""
    (finding,) = judge(facts(nearness=rows(*[SMALL] * 20), replaced=("jpeg",)))
    (without,) = judge(facts(nearness=rows(*[SMALL] * 20)))

    assert "'jpeg' is that of --bpda" in finding.text
    assert "--bpda" not in without.text


def turning(*numbers: int, of: int = 40) -> list[NearnessRecord]:
    """Images of which some have a gradient that turns within a short step."""
    return [replace(row, clean_step=0.0) if row.sample in numbers else row for row in rows(*[RIGHT] * of)]


def judged(near: list[NearnessRecord], broken: Iterable[int]) -> Finding:
    columns = AttackColumns.of((number, number in set(broken), *[0] * 10) for number in range(40))
    (finding,) = judge(facts(nearness=near, attacked={("Linf", "0.1", "rk-14"): columns}))
    return finding


@pytest.mark.parametrize(
    ("near", "broken", "status"),
    [
        (turning(*range(10)), [], "failed"),
        (turning(*range(10)), range(7), "failed"),  # three stand
        (turning(*range(10)), range(8), "ok"),  # the thirty others were not in doubt
        (rows(*[ERRS] * 10, *[RIGHT] * 30), range(10), "failed"),  # the backward pass is wrong, whatever the image
        (rows(*[ERRS] * 10, *[RIGHT] * 30), range(38), "ok"),
        (rows(*[SMALL] * 40), range(37), "failed"),
        (rows(*[SMALL] * 40), range(38), "ok"),
    ],
)  # fmt: skip
def test_images_that_fall_all_the_same_make_no_robust_accuracy_too_high(near, broken, status):
    """mobilenet_v2 on digits was not reliable at a robust accuracy of 0 %."""
    finding = judged(near, broken)

    assert finding.status == status
    assert ("too high" in finding.text) == (len(finding.images) > 0 or status == "failed")
    assert ("Attacks broke nearly all of these images" in finding.text) == (status == "ok" and len(finding.images) > 0)


@pytest.mark.parametrize(
    ("norm", "times", "status"),
    [("Linf", 3.9, "ok"), ("Linf", 4.1, "failed"), ("L1", 7.9, "ok"), ("L1", 8.1, "failed")],
)
def test_a_gradient_that_has_little_left_to_predict_may_miss_much(norm, times, status):
    """googlenet on digits was not reliable at Linf 0.05 and L1 0.5; in L1 0.3 single values of resnet18 move by 0.3."""
    near = [replace(row, norm=norm, obtained=times * row.predicted) for row in rows(*[RIGHT] * 20)]
    (finding,) = judge(facts(nearness=near, places=(RunThreat(norm, "0.1"),)))

    assert finding.status == status


def blank(count: int, of: int = 40, **given: object) -> list[NearnessRecord]:
    """Images of which some have a gradient that predicts too little for any test."""
    return [
        replace(row, clean_step=1.0, clean_way=1.0, **given) if row.sample < count else row
        for row in rows(*[LOST] * count, *[RIGHT] * (of - count))
    ]


@pytest.mark.parametrize(
    ("near", "broken", "status"),
    [
        (blank(10), [], "failed"),
        (blank(10), range(7), "failed"),
        (blank(10), range(8), "ok"),
        (blank(2), [], "ok"),
        (rows(*[LOST] * 10, *[RIGHT] * 30), [], "ok"),  # the steps along the gradient do what it says
        (blank(10, random_error=-1.0, random_bend=-1.0), [], "ok"),  # an older ensemble
    ],
    ids=["stand", "three stand", "two stand", "two images", "lost steps only", "an older ensemble"],
)
def test_a_gradient_too_small_to_test_is_not_believed(near, broken, status):
    """Behind a softmax of six times the logits 78 % survived, 51 % without it, and nothing was reported."""
    finding = judged(near, broken)

    assert finding.status == status
    assert ("too small to test it" in finding.text) == (status == "failed")


@pytest.mark.parametrize(
    ("norm", "eps", "status"),
    [("Linf", "0.0009", "ok"), ("Linf", "0.001", "failed"), ("L2", "0.009", "ok"), ("L1", "0.09", "ok")],
)
def test_a_small_radius_shows_nothing_about_gradients(norm, eps, status):
    near = [replace(row, norm=norm, eps_text=eps) for row in blank(10)]
    (finding,) = judge(facts(nearness=near, places=(RunThreat(norm, eps),)))

    assert finding.status == status


def test_logits_of_16_bits_hide_small_changes_of_an_ordinary_network():
    logits = np.full((40, 10), 1.5, dtype=np.float32)
    (finding,) = judge(facts(nearness=blank(10), logits=(logits,)))
    (of_32_bits,) = judge(facts(nearness=blank(10), logits=(logits + np.float32(1e-6),)))

    assert (finding.status, of_32_bits.status) == ("ok", "failed")


@pytest.mark.parametrize(
    ("misled", "images", "status"),
    [(2, 16, "ok"), (3, 16, "failed"), (2, 39, "ok"), (4, 39, "ok"), (5, 39, "failed"), (2, 5, "failed")],
)
def test_two_flat_spots_are_no_masked_gradients(misled, images, status):
    """A CNN on MNIST was not reliable at L1 1, because the gradients of 2 of 39 images mislead."""
    (finding,) = judge(facts(nearness=turning(*range(misled), of=images)))

    assert finding.status == status
    assert ("also happens on networks without masked gradients" in finding.text) == (status == "ok")
    assert len(finding.images) == misled
