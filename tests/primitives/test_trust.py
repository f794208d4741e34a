"""When gradients are believed."""

import math

import pytest

from robustkit.primitives.trust import CleanGradient, Gain, RandomStep, backfires, believable, bent, doubt


@pytest.mark.parametrize(("predicted", "obtained", "expected"), [
    (1.0, 0.9, (True, False)), (1.0, 1.9, (True, False)), (1.0, 2.1, (False, False)), (0.0, 0.5, (False, False)),
    (1.0, 0.2, (True, True)), (1.0, -3.0, (True, True)),
])  # fmt: skip
def test_what_happened_says_whether_a_gradient_is_believed(predicted, obtained, expected):
    assert (believable(predicted, obtained), bent(predicted, obtained)) == expected


@pytest.mark.parametrize(
    ("gained", "believed"), [(0.9, True), (0.26, True), (0.24, False), (2.1, False), (-1.0, False)]
)
def test_a_short_step_gains_about_what_the_gradient_at_the_clean_image_promises(gained, believed):
    found = CleanGradient.of(10.0, Gain(1.0, gained), Gain(10.0, 9.0), 0.0, size=1.0)

    assert found.step == pytest.approx(gained)
    assert believable(1.0, 0.9, clean=found) == believed


@pytest.mark.parametrize(("moved", "believed"), [(0.4, True), (-0.4, True), (0.6, False), (-0.6, False)])
def test_values_without_a_gradient_move_little_of_what_it_predicts_at_the_clean_image(moved, believed):
    found = CleanGradient.of(10.0, Gain(1.0, 1.0), Gain(10.0, 9.0), moved, size=1.0)

    assert found.unseen == pytest.approx(0.04 if believed else 0.06)
    assert believable(1.0, 0.9, clean=found) == believed


def test_what_rounding_explains_says_nothing_of_a_gradient():
    # At tiny radii a short step is lost in the last bits of the logits.
    assert CleanGradient.of(9e-5, Gain(9e-6, -1e-5), Gain(9e-5, -1e-4), 1e-4, size=1.0) == CleanGradient()
    assert CleanGradient.of(9e-3, Gain(9e-4, -1e-3), Gain(9e-3, -1e-2), 0.0, size=100.0) == CleanGradient()


def test_what_rounding_to_16_bits_explains_says_nothing_of_a_gradient():
    """Honest networks in bf16 were called masked at small radii, because short steps were lost in rounding."""
    found = (1.0, Gain(0.1, -0.2), Gain(1.0, 0.9), 0.0)

    assert CleanGradient.of(*found, size=20.0, unit=2**-7).step == 1.0
    assert CleanGradient.of(*found, size=20.0).step == CleanGradient.of(*found, size=2.0, unit=2**-7).step == -2.0


@pytest.mark.parametrize(("unseen", "said"), [(0.11, "hides"), (0.09, None)])
def test_values_without_a_gradient_at_the_best_point_move_little_of_what_it_predicts(unseen, said):
    assert doubt(1.0, 0.9, unseen, CleanGradient()) == said


@pytest.mark.parametrize(("obtained", "expected"), [(-0.51, True), (-0.49, False)])
def test_a_gradient_backfires_that_loses_more_than_half_of_what_it_predicts(obtained, expected):
    assert backfires(1.0, obtained) == expected


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_scale_of_the_logits_does_not_matter(scale):
    step, way = Gain(scale, 0.2 * scale), Gain(10 * scale, -4 * scale)
    found = CleanGradient.of(10 * scale, step, way, 3 * scale, size=20 * scale)

    assert found[:3] == pytest.approx((0.2, -0.4, 0.3))

    step = RandomStep.of(3 * scale, 2 * scale, 0.5 * scale, 1.5 * scale, size=20 * scale)
    assert step == pytest.approx((0.75, 0.25))


def test_a_gradient_of_zero_hides_whatever_moves_the_lead():
    assert CleanGradient.of(0.0, Gain(0.0, 0.0), Gain(0.0, 0.0), 0.5, size=1.0).unseen == math.inf
    assert CleanGradient.of(0.0, Gain(0.0, 0.0), Gain(0.0, 0.0), 0.0, size=1.0) == CleanGradient()


@pytest.mark.parametrize(("obtained", "believed"), [(9.0, True), (-1.9, True), (30.0, True), (-2.1, False)])
def test_the_whole_way_does_not_lose_what_the_gradient_at_the_clean_image_predicts(obtained, believed):
    found = CleanGradient.of(10.0, Gain(1.0, 1.0), Gain(10.0, obtained), 0.0, size=1.0)

    assert believable(1.0, 0.9, clean=found) == believed


@pytest.mark.parametrize(("first_half", "whole", "seen"), [
    (1.0, 2.0, (False, False)), (0.6, 1.2, (False, False)),  # along a line, about as predicted
    (0.0, 0.01, (True, False)), (0.15, 0.3, (True, False)), (-1.0, -2.0, (True, False)), (2.0, 4.0, (True, False)),
    (0.5, 0.0, (False, True)), (2.0, 0.0, (False, True)), (-4.0, -2.0, (False, True)),  # not along a line
    (0.0, 0.0, (False, False)),  # lost in rounding
])  # fmt: skip
def test_a_gradient_errs_where_a_random_step_changes_the_logits_along_another_line(first_half, whole, seen):
    step = RandomStep.of(2.0, 2.0, first_half, whole, size=1.0)

    assert (step.wrong, step.crooked) == seen
    assert believable(1.0, 0.9, clean=CleanGradient(random=step)) != seen[0]


def test_a_random_step_that_rounding_explains_says_nothing():
    assert RandomStep.of(9e-6, 9e-6, -1e-5, -2e-5, size=1.0) == RandomStep()
    assert RandomStep.of(0.0, 0.0, 0.0, 0.0, size=0.0) == RandomStep()


def test_of_two_steps_the_one_that_errs_less_counts_if_it_says_something():
    first = RandomStep(0.5, 0.1)

    assert first.or_rather(RandomStep(0.4, 0.3)) == RandomStep(0.4, 0.3)
    assert first.or_rather(RandomStep(0.6, 0.0)) == first
    assert first.or_rather(RandomStep()) == first
