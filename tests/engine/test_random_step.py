"""What a small random step is, and what it shows of functions whose change is known."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.session import Session
from robustkit.engine.margins import Margins
from robustkit.engine.random_step import random_steps
from robustkit.primitives.measure import Measure
from robustkit.primitives.protocol import begin
from robustkit.primitives.trust import RandomStep
from tests.networks import Rival
from tests.problems import trials

SHAPE = (1, 8, 8)


class Taken(NamedTuple):
    way: Tensor  # [n, 64]
    steps: list[RandomStep]


def taken(
    x: Tensor, norm: str, eps: float, monkeypatch, function=lambda x: x.sum(1), *, constant: float = 100.0,
    again: bool = False,
) -> Taken:  # fmt: skip
    """The random steps from images of class 0."""
    asked: list[Tensor] = []
    answer = Session.logits

    def logits(self: Session, points: Tensor) -> Tensor:
        asked.append(points)
        return answer(self, points)

    attack = Margins(eps, norm, measure=Measure(classes=1))
    with Classifier(Rival(function, constant).eval(), fold=False).session(x) as session:
        clean = session.logits(x)
        monkeypatch.setattr(Session, "logits", logits)
        walked = random_steps(session, attack, begin(trials(x), x), clean, again=again)
    # All images, then those whose step is taken again.
    assert len(asked) == 1 + (len(asked) > 1)
    assert sum(len(points) for points in asked) == sum(each.cost.forwards for each in walked) / 2
    return Taken((asked[0].double() - x.double()).flatten(1), [each.step for each in walked])


@pytest.mark.parametrize(
    ("norm", "eps", "values", "size"),
    [
        ("Linf", 0.1, 64, 0.02),
        ("Linf", 0.02, 64, 0.01),  # half of the radius
        ("Linf", 0.5, 64, 0.05),  # a tenth of the radius
        ("L2", 0.5, 64, 0.02),
        ("L2", 0.1, 20, 0.05 / math.sqrt(20)),  # half of the radius, on twenty values
        ("L2", 4.0, 64, 0.05),  # a tenth of the radius, on all values
        ("L1", 1.3, 32, 0.02),  # half of the radius is 0.65
        ("L1", 0.1, 20, 0.0025),
        ("L1", 32.0, 64, 0.05),
    ],
)
def test_a_step_moves_so_many_values_so_far(norm, eps, values, size, monkeypatch):
    way = taken(torch.full((5, *SHAPE), 0.5), norm, eps, monkeypatch).way
    moved = way != 0

    assert moved.sum(1).tolist() == [values] * 5
    assert way[moved].abs().sub(size).abs().max() < 1e-6


@pytest.mark.parametrize(("norm", "values"), [("Linf", 64), ("L1", 20)])
@pytest.mark.parametrize(("level", "side"), [(0.0, 1), (1.0, -1)])
def test_at_the_border_of_the_box_as_many_values_move_inwards(norm, values, level, side, monkeypatch):
    way = taken(torch.full((5, *SHAPE), level), norm, 0.1, monkeypatch).way

    assert (way.sign() == side).sum(1).tolist() == [values] * 5


def test_sides_and_values_are_chosen_independently_and_for_each_image(monkeypatch):
    way = taken(torch.full((60, *SHAPE), 0.5), "L1", 0.1, monkeypatch).way
    chosen = (way != 0).double()

    assert 0.45 < float((way > 0).double().sum() / chosen.sum()) < 0.55
    # Of 60 images each value moves in 60 * 20 / 64 = 19 on average.
    assert chosen.sum(0).min() > 5
    assert chosen.sum(0).max() < 35


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_a_quadratic_function_bends_but_its_gradient_in_the_middle_is_right(norm, monkeypatch):
    x = torch.rand(10, *SHAPE, generator=torch.Generator().manual_seed(0))
    way, steps = taken(x, norm, 0.4, monkeypatch, lambda x: (3 * x.square()).sum(1))
    # The gradient at x + v / 2 is 6 (x + v / 2); the change is 6 x v + 3 v^2, that of the first half 3 x v + 3/4 v^2.
    deviation = (6 * (x.double().flatten(1) + way / 2) * way).norm(dim=1)
    bend = 1.5 * way.square().sum(1) / deviation

    assert max(step.error for step in steps) < 1e-4
    assert [step.bend for step in steps] == pytest.approx(bend.tolist(), rel=5e-3)


@pytest.mark.parametrize(("slope", "lost"), [(0.5, True), (2.0, False)])
def test_a_change_below_a_hundred_thousandth_of_the_larger_logit_says_nothing(slope, lost, monkeypatch):
    x = torch.full((4, *SHAPE), 0.5)
    # A standard deviation of 0.02 * 8 * slope / 160, where the logits are 100 and about 0.2.
    steps = taken(x, "Linf", 0.1, monkeypatch, lambda x: slope * x.sum(1) / 160).steps

    assert [step.lost for step in steps] == [lost] * 4


def waves(x: Tensor) -> Tensor:
    """As long as a step of 0.02, so that it changes nothing; one of 1/64 of that follows the gradient."""
    return torch.sin(x * 2 * math.pi / 0.02).sum(1)


def levels(x: Tensor) -> Tensor:
    return torch.round(x * 255) / 255


class Reversed(torch.autograd.Function):
    """A sum whose gradient has another sign at the first 16 values."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.sum(1)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad.unsqueeze(1) * torch.where(torch.arange(64) < 16, -1.0, 1.0)


@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.1), ("L2", 0.5), ("L1", 3.0)])
def test_a_shorter_step_tells_a_rough_function_from_a_gradient_that_is_wrong(norm, eps, monkeypatch):
    """densenet121, mobilenet_v2 and shufflenet_v2 on digits were called masked."""
    x = torch.rand(40, *SHAPE, generator=torch.Generator().manual_seed(0)) * 0.9 + 0.05

    def errors(function, again: bool) -> list[float]:
        return [step.error for step in taken(x, norm, eps, monkeypatch, function, again=again).steps]

    assert sum(error > 0.8 for error in errors(waves, False)) > 10
    assert max(errors(waves, True)) < 0.25
    assert errors(Reversed.apply, True) == pytest.approx(errors(Reversed.apply, False), rel=1e-3)
    assert sum(error > 0.8 for error in errors(Reversed.apply, True)) > 10


def test_behind_256_levels_the_longer_step_counts(monkeypatch):
    """A shorter one changes nothing, or something else by far; by chance it errs less."""
    x = torch.rand(40, *SHAPE, generator=torch.Generator().manual_seed(0))

    def steps(again: bool) -> list[RandomStep]:
        return taken(
            x, "Linf", 0.1, monkeypatch, lambda x: Reversed.apply(x + (levels(x) - x).detach()), again=again
        ).steps

    once, twice = steps(False), steps(True)

    assert sum(step.error > 0.8 for step in once) > 10
    assert sum(step == other for step, other in zip(once, twice, strict=True)) > 30
