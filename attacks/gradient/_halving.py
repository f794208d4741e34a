"""The timetable of successive halving: rounds of searches, of which each keeps the better half of the candidates.

Jamieson & Talwalkar 2016, arXiv:1502.07943, algorithm 1. Each round takes twice as many steps for a candidate as the
one before, so that all rounds cost about the same; the last candidate gets a number of steps of its own.
"""

from functools import cache
from typing import NamedTuple

from torch import Tensor

from .._schedules import at, table


class Turn(NamedTuple):
    """What a query belongs to; `[B]` int64 each, for the queries of B rows."""

    round: Tensor  # from 0; -1 for the query that ranks the candidates
    place: Tensor  # of the candidate
    since: Tensor  # queries of the present search before this one
    ends_search: Tensor  # 1 or 0
    ends_round: Tensor  # 1 or 0


class Timetable(NamedTuple):
    """All queries in order."""

    rounds: int
    queries: int
    columns: tuple[Tensor, ...]  # of turns, [queries] each

    def at(self, queries: Tensor) -> Turn:
        """The turns of the next queries of rows that had `queries` `[B]` so far; of the last one after the end."""
        return Turn(*(at(queries, column, queries) for column in self.columns))


@cache
def timetable(candidates: int, short: int, long: int) -> Timetable:
    """The timetable of a race, as in `rounds`; one query comes first and ranks the candidates."""
    rows, all_rounds = [(-1, 0, 0, 1, 0)], rounds(candidates, short, long)
    for number, (in_race, steps) in enumerate(all_rounds):
        rows += _round(number, in_race, steps)
    return Timetable(len(all_rounds), len(rows), tuple(table(column) for column in zip(*rows, strict=True)))


def rounds(candidates: int, short: int, long: int) -> list[tuple[int, int]]:
    """How many candidates each round has, and the steps for each of them.

    Args:
        candidates: how many begin.
        short: steps for each of them in the first round.
        long: steps for the last one.
    """
    found = []
    while candidates > 1:
        found.append((candidates, short))
        candidates, short = candidates // 2, 2 * short
    return [*found, (1, long)]


def _round(number: int, candidates: int, steps: int) -> list[tuple[int, int, int, int, int]]:
    last = candidates - 1
    return [
        (number, place, since, int(since == steps - 1), int(since == steps - 1 and place == last))
        for place in range(candidates)
        for since in range(steps)
    ]
