"""The timetable of successive halving."""

import pytest
import torch
from robustkit.attacks.gradient._halving import timetable


def table(candidates: int, short: int, long: int) -> list[tuple[int, ...]]:
    """All turns of a race."""
    whole = timetable(candidates, short, long)
    return list(zip(*(column.tolist() for column in whole.at(torch.arange(whole.queries))), strict=True))


def test_each_round_halves_the_candidates_and_doubles_their_steps():
    turns = table(9, 2, 5)

    steps = [(round_, place) for round_, place, *_ in turns[1:]]
    assert {pair: steps.count(pair) for pair in steps} == {
        **dict.fromkeys(((0, place) for place in range(9)), 2),
        **dict.fromkeys(((1, place) for place in range(4)), 4),
        **dict.fromkeys(((2, place) for place in range(2)), 8),
        (3, 0): 5,
    }


def test_searches_and_rounds_end_once_each():
    turns = table(4, 3, 2)

    searches = [(round_, place) for round_, place, _, ends, _ in turns if ends]
    rounds = [(round_, place) for round_, place, _, _, ends in turns if ends]
    assert searches == [(-1, 0), (0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0)]
    assert rounds == [(0, 3), (1, 1), (2, 0)]


@pytest.mark.parametrize(("candidates", "rounds"), [(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4)])
def test_the_last_round_has_one_candidate(candidates, rounds):
    assert timetable(candidates, 1, 6).rounds == rounds
    assert [place for round_, place, *_ in table(candidates, 1, 6) if round_ == rounds - 1] == [0] * 6


def test_after_the_end_it_is_the_last_turn():
    whole = timetable(2, 1, 1)

    beyond, last = whole.at(torch.tensor([99])), whole.at(torch.tensor([whole.queries - 1]))

    assert beyond == last
