from itertools import pairwise

import pytest
import torch
from robustkit.attacks import SignOPT
from robustkit.attacks.decision.sign_opt import SAMPLE, TRY

from robustkit.classifier.answers import answered
from tests.attacks.decision.driven import aimed, driven
from tests.attacks.linear import linear


def walked(method, made):
    """The states after each query."""
    state = method.init(aimed(made.x, made.y))
    while not state.done.all():
        state = method.step(state, answered(method, state, made.model))
        yield state


def test_samples_tell_the_directional_derivative_of_the_distance():
    made = linear(2)
    method = SignOPT(0.1, "L2", queries=160, samples=100)
    estimates = [state.total[state.phase == TRY] for state in walked(method, made)]
    weight = made.model[0].weight
    # Towards the other class the boundary comes nearer; the part along the direction itself changes nothing.
    toward = torch.where((made.y == 0).unsqueeze(1), weight[1] - weight[0], weight[0] - weight[1])
    final = driven(method, made.model, aimed(made.x, made.y))
    part = toward - (toward * final.at).sum(1, keepdim=True) * final.at
    known = final.total.norm(dim=1) > 0

    assert any(len(each) for each in estimates)
    assert torch.cosine_similarity(final.total, part)[known].median() > 0.8


def test_the_radius_along_the_direction_never_grows():
    made = linear(3)
    least = None
    for state in walked(SignOPT(0.1, "L2", queries=300, samples=30), made):
        known = state.least > 0
        if least is not None:
            assert (state.least <= least)[known & (least > 0)].all()
        least = state.least


def test_a_direction_without_an_error_at_the_least_distance_is_dropped_after_one_query():
    # ART's search follows such a direction outwards, 1 % at a time.
    made = linear(3)
    states = list(walked(SignOPT(0.1, "L2", queries=300, samples=30), made))
    dropped = 0
    for before, after in pairwise(states):
        trying = before.phase == TRY
        missed = trying & (answered(SignOPT(0.1, "L2"), before, made.model).label == made.y)
        dropped += int(missed.sum())
        assert ((after.phase == TRY) | (after.phase == SAMPLE))[missed].all()

    assert dropped > 10


def test_a_sample_turns_the_direction_by_its_length_and_stays_as_far_away():
    made = linear(2)
    method = SignOPT(0.1, "L2", queries=60, spread=0.01)
    state = next(each for each in walked(method, made) if (each.phase == SAMPLE).all())
    way = state.query - made.x

    assert way.norm(dim=1).tolist() == pytest.approx(state.least.tolist(), rel=1e-4)
    turned = torch.acos(torch.cosine_similarity(way.double(), state.at.double()))
    assert (turned < 0.0101).all()
    assert (turned > 0.004).all()
