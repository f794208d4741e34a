"""Searches that begin in a larger ball and shrink it to the true one, for networks with flat losses around an image.

In a ball of several eps, gradients still lead to errors. The ball then shrinks in stages, each of which starts at the
best point of the previous one, so that the search stays in regions where gradients are useful.
Croce & Hein 2021, arXiv:2103.01208, do this in L1 with radii of 3, 2 and 1 eps. Halving the radius is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from torch import Tensor

from robustkit.primitives.ball import Ball
from robustkit.primitives.protocol import BestState, Seen, State, Trials
from robustkit.primitives.rows import surely_none


class BallStage(NamedTuple):
    """One stage of a search: its ball and its number of steps."""

    radius: float  # in units of eps
    steps: int


class SearchInBall(Protocol):
    """A search in one ball that can begin at any of its points; it is done after `steps` queries."""

    @property
    def ball(self) -> Ball: ...
    @property
    def steps(self) -> int: ...
    def begin_at(self, trials: Trials, start: Tensor) -> BestState: ...
    def step(self, state: State, seen: Seen) -> State: ...


def shrinking(steps: int, start_radius: float) -> list[BallStage]:
    """Stages with radii from `start_radius` to 1, each about half the previous; the last has about twice the steps."""
    turns = math.ceil(math.log2(start_radius))
    early = steps // (turns + 2)
    if not turns or not early:
        return [BallStage(1.0, steps)]
    radii = [start_radius ** ((turns - turn) / turns) for turn in range(turns)]
    return [*(BallStage(radius, early) for radius in radii), BallStage(1.0, steps - early * turns)]


def staged_step(searches: Sequence[SearchInBall], state: BestState, seen: Seen) -> State:
    """One step of every row, each in the stage to which its number of queries belongs.

    After the last query of a stage, the best point is projected onto the next ball, and the next stage begins there.
    """
    # On a GPU all stages are computed: to skip those without rows, the host would have to wait for the GPU.
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
    """The state in which rows that are done begin the next stage, `search`; the others are unchanged."""
    if surely_none(state.done):
        return state
    assert isinstance(state, BestState)
    start = search.ball.project(state.trial.x, state.best)
    return search.begin_at(state.trial, start).where(state.done, state)
