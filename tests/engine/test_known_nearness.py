"""Nearness of functions whose gradients and changes are known."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.engine.margins import Margins
from robustkit.engine.nearness import Nearness, measured
from robustkit.primitives.measure import Measure
from robustkit.primitives.protocol import begin
from tests.networks import Rival
from tests.problems import trials

EPS, VALUES, MEASURE = 0.1, 64, Measure(classes=1)


def nearness(
    function: Callable[[Tensor], Tensor],
    lead: float,
    x: Tensor,
    at: Tensor | None = None,
    measure: Measure = MEASURE,
) -> Nearness:
    """Of one image of class 0, at the image or at another point, where class 1 is behind by `lead` at the image."""
    model = Rival(function, float(function(x.double().flatten(1))[0]) + lead)
    with Classifier(model.eval(), fold=False).session(x) as session:
        attack = Margins(EPS, "Linf", measure=measure)
        return measured(session, attack, begin(trials(x), x), x if at is None else at)[0]


def grey(level: float = 0.5) -> Tensor:
    return torch.full((1, 1, 8, 8), level)


@pytest.mark.parametrize("lead", [3.0, 0.5])
def test_the_ratio_of_a_linear_function_is_its_lead_over_all_that_can_be_gained(lead):
    found = nearness(lambda x: 2 * x.sum(1), lead, grey())

    assert found.predicted == pytest.approx(2 * VALUES * EPS, rel=1e-5)
    assert found.obtained == pytest.approx(2 * VALUES * EPS, rel=1e-5)
    assert found.ratio == pytest.approx(lead / (2 * VALUES * EPS), rel=1e-4)


@pytest.mark.parametrize(("bend", "counts"), [(3.0, "obtained"), (-3.0, "predicted")])
def test_the_larger_of_what_is_predicted_and_what_is_obtained_counts(bend, counts):
    # The slope at 1/2 is 2; a step of EPS adds bend EPS^2 to what it says.
    found = nearness(lambda x: (2 * x + bend * (x - 0.5).square()).sum(1), 10.0, grey())
    obtained = VALUES * (2 * EPS + bend * EPS**2)

    assert found.predicted == pytest.approx(2 * VALUES * EPS, rel=1e-5)
    assert found.obtained == pytest.approx(obtained, rel=1e-5)
    assert found.ratio == pytest.approx(10 / {"obtained": obtained, "predicted": 2 * VALUES * EPS}[counts], rel=1e-4)


def test_a_point_that_is_wrong_already_is_as_near_as_can_be():
    # The lead is 1, and at the point, where half of the radius is spent, it is 1 - 6.4.
    assert nearness(lambda x: 2 * x.sum(1), 1.0, grey(), at=grey(0.55)).ratio == 0


@pytest.mark.parametrize(
    ("level", "function"),
    [(0.95, lambda x: (0.9 - x).clamp(min=0)), (0.05, lambda x: (x - 0.1).clamp(min=0))],
    ids=["bright", "dark"],
)
def test_values_without_a_gradient_move_to_where_they_have_room(level, function):
    """Near the border of the box half of all random ends lie where nothing can change."""
    x = grey()
    x[0, 0, 0, 0] = level
    measure = Measure(1, clean_gradient=True)
    # A lead that is no number of 16 bits: rounding to these could explain the change.
    found = nearness(lambda x: 10 * function(x[:, 0]) + x[:, 1:].sum(1), 20.123, x, measure=measure)

    # The gradient says 63 EPS of the other values; the first one moves by EPS, 0.05 of it beyond the threshold.
    assert found.clean_gradient.unseen == pytest.approx(0.5 / (63 * EPS), rel=1e-3)
