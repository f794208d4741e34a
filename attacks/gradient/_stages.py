"""Searches that begin in larger balls and end in the true one, for networks whose gradients near an image lead nowhere.

Gradients find errors several eps away; on the way back, ball by ball, the search stays where gradients are of use.
Croce & Hein 2021, arXiv:2103.01208, do so in L1 with radii of 3, 2 and 1 eps; radii that are halved are ours.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from torch import Tensor

from robustkit.primitives.ball import Ball
from robustkit.primitives.protocol import BestState, Seen, State, Trials


class BallStage(NamedTuple):
    """The part of a search that stays in one ball."""

    radius: float  # in units of eps
    steps: int


class SearchInBall(Protocol):
    """A search in one ball that can begin at any point; it is done after as many queries as it has steps."""

    @property
    def ball(self) -> Ball: ...
    @property
    def steps(self) -> int: ...
    def begin_at(self, trials: Trials, start: Tensor) -> BestState: ...
    def step(self, state: State, seen: Seen) -> State: ...


def shrinking(steps: int, start_radius: float) -> list[BallStage]:
    """Stages from `start_radius` down to 1, about halved each time; the last one has twice the steps of each other."""
    turns = math.ceil(math.log2(start_radius))
    early = steps // (turns + 2)
    if not turns or not early:
        return [BallStage(1.0, steps)]
    radii = [start_radius ** ((turns - turn) / turns) for turn in range(turns)]
    return [*(BallStage(radius, early) for radius in radii), BallStage(1.0, steps - early * turns)]


def staged_step(searches: Sequence[SearchInBall], state: BestState, seen: Seen) -> State:
    """One step of every row in the stage that its number of queries says.

    After the last query of a stage the best point, projected to the next ball, is where the next stage begins.
    """
    # A GPU computes all stages, because the host would have to wait for it to learn which ones have rows.
    skips = state.queries.device.type == "cpu"
    after: State | None = None
    begun = 0
    for search, following in zip(searches, [*searches[1:], None], strict=True):
        here = state.queries >= begun
        if following is not None:
            here &= state.queries < begun + search.steps
        if not skips or bool(here.any()):
            moved = search.step(replace(state, queries=state.queries - begun), seen)
            if following is not None:
                moved = _next(following, moved)
            moved = replace(moved, queries=state.queries + 1)
            after = moved if after is None else moved.where(here, after)
        begun += search.steps
    assert after is not None
    return after


def _next(search: SearchInBall, state: State) -> State:
    """Rows that are done begin the next stage; the others stay as they are."""
    if state.done.device.type == "cpu" and not bool(state.done.any()):
        return state
    assert isinstance(state, BestState)
    start = search.ball.project(state.trial.x, state.best)
    return search.begin_at(state.trial, start).where(state.done, state)
