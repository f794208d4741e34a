import pytest
import torch
from robustkit.attacks import RayS

from robustkit.primitives.protocol import Trials
from tests.attacks.decision.driven import aimed, driven
from tests.attacks.linear import linear


def test_the_nearest_error_between_two_classes_of_a_linear_classifier_is_found():
    # With two classes every flip helps or hurts by itself, so that one pass over the single values finds the signs.
    made = linear(2)
    state = driven(RayS(0.1, queries=300), made.model, aimed(made.x, made.y))

    assert (state.distance / made.distance["Linf"]).tolist() == pytest.approx([1] * len(made.x), rel=1.5e-3)


def test_with_several_classes_it_is_found_for_most_images():
    made = linear(5)
    state = driven(RayS(0.1, queries=300), made.model, aimed(made.x, made.y))
    times = state.distance / made.distance["Linf"]

    assert times.quantile(0.9).item() == pytest.approx(1, rel=3e-3)


def test_a_flip_that_does_not_help_costs_one_query():
    # The first direction is an error and every flip of it is none.
    method = RayS(0.1, queries=1000)
    state = method.init(aimed(torch.full((1, 8), 0.5), torch.tensor([0])))
    no, yes = torch.tensor([False]), torch.tensor([True])
    state = method.advance(state, yes)
    while state.halving:
        state = method.advance(state, no)
    blocks = []
    for _ in range(2 + 4 + 8):
        blocks.append((int(state.level), int(state.number)))
        state = method.advance(state, no)

    assert blocks == [(level, number) for level in (1, 2, 3) for number in range(2**level)]
    assert (int(state.level), int(state.number)) == (0, 0)


def test_later_restarts_begin_at_other_signs():
    made = linear(3)
    first, second = (RayS(0.1).init(replaced_restart(aimed(made.x, made.y), restart)).signs for restart in (0, 1))

    assert (first == 1).all()
    assert 0.4 < (second == 1).float().mean() < 0.6


def replaced_restart(trials: Trials, restart: int) -> Trials:
    return Trials(**{**vars(trials), "restart": torch.full_like(trials.restart, restart)})
