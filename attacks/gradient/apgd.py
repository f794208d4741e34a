"""Auto-PGD: projected gradient ascent with momentum; it halves its step size by itself, so that none need be tuned.

Croce & Hein 2020, arXiv:2003.01690, algorithm 1. `_checkpoints.py` has the rule for the step size, and what differs.
The L1 form, Croce & Hein 2021, arXiv:2103.01208, is in `apgd_l1.py`. "APGD-CE" is loss="log-odds", which has the order
and the gradient's direction of cross-entropy but does not saturate, or exactly loss="ce". "APGD-T" is loss="dlr" with
targets=9.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.ascent import Ascent, step_unit
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._schedules import at
from .._starts import random_direction
from ._checkpoints import Checkpoints, CheckpointState
from ._lead import Lead, allowed
from ._stages import BallStage, shrinking, staged_step
from .apgd_l1 import SparseState, published, sparse_begin, sparse_cost, sparse_step

_WIDEST = 1e6  # largest L2 radius in use: such a ball contains every image


@dataclass(frozen=True)
class ApgdState(CheckpointState):
    """The state of one trial (Linf and L2)."""

    old: Tensor  # [B, *S] the point from which the step to the query was taken


@dataclass(frozen=True)
class PacedState(ApgdState):
    """The state of a search that may be given up (Linf and L2)."""

    lead: Lead


@dataclass(frozen=True)
class PacedSparseState(SparseState):
    """The state of a search that may be given up (L1)."""

    lead: Lead


@dataclass(frozen=True)
class APGD(Ascent):
    """Auto-PGD in Linf, L2 or L1, or in a frame.

    Args:
        steps: gradient steps per trial.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
        rho: share of steps that must raise the loss for the step size to stay.
        start_radius: radius of the ball in which the search begins, in units of eps; it is then halved in stages until
            it is eps (`_stages.py`). None is as published: 1, and in L1 stages of 3, 2 and 1.
        pace: a search is given up where n fifths of its steps in the last ball leave more than this share to the power
            of n of the margin at its start, or where that ball begins, whichever is larger; None lets every search run
            to its end.
    """

    _: KW_ONLY
    steps: int = 100
    rho: float = 0.75
    start_radius: float | None = None
    pace: float | None = None

    norms = ("Linf", "L2", "L1", "frame")
    keeps_best = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "rho")
        self.at_least_or_none(1.0, "start_radius")
        if self.start_radius is not None and self.ball.norm == "frame":
            raise UserError("APGD: in a frame values are free, so there is no larger ball; leave start_radius out.")
        self.at_least_or_none(0.0, "pace")

    @property
    def cost(self) -> TrialCost:
        return sparse_cost(self._stages) if self.ball.norm == "L1" else super().cost

    @cached_property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.steps, self.rho)

    @cached_property
    def _stages(self) -> list[BallStage]:
        if self.start_radius is None and self.ball.norm == "L1":
            return published(self.steps)
        return shrinking(self.steps, self.start_radius or 1.0)

    @cached_property
    def _searches(self) -> list["APGD"]:
        """One attack per stage, with its ball and its steps (Linf and L2)."""
        if len(self._stages) == 1:
            return [self]
        widest = 1.0 if self.ball.norm == "Linf" else _WIDEST
        return [replace(self, eps=min(radius * self.ball.eps, widest), steps=steps, start_radius=None, pace=None)
                for radius, steps in self._stages]  # fmt: skip

    @cached_property
    def _before_last_ball(self) -> int:
        """Queries before the search enters its last ball; in L1 each stage queries the point where it ends, too."""
        return sum(stage.steps + (self.ball.norm == "L1") for stage in self._stages[:-1])

    def init(self, trials: Trials) -> State:
        begun = self._begun(trials)
        if self.pace is None:
            return begun
        kind = PacedSparseState if isinstance(begun, SparseState) else PacedState
        return kind(**vars(begun), lead=Lead.begin(begun.best_loss))

    def _begun(self, trials: Trials) -> SparseState | ApgdState:
        if self.ball.norm == "L1":
            return sparse_begin(trials, self.ball, self._stages)
        return self._searches[0].begin_at(trials, self.random_start(trials))

    def random_start(self, trials: Trials, draw: Tensor | int = 0) -> Tensor:
        """`[B, *S]` random noise scaled to the radius of the first ball, around the images (Linf and L2)."""
        widest = self._searches[0].ball
        direction = random_direction(widest, trials.x, trials.key, draw)
        return widest.project(trials.x, trials.x + step_unit(widest) * direction)

    def begin_at(self, trials: Trials, start: Tensor) -> ApgdState:
        """The state before the first query, which is `start` `[B, *S]`, a point of the ball (Linf and L2)."""
        return ApgdState(**vars(self._checkpoints.begin(trials, start, 2 * step_unit(self.ball))), old=start)

    def step(self, state: State, seen: Seen) -> State:
        moved = self._step(state, seen)
        return moved if self.pace is None else self._paced(self.pace, state, seen, moved)

    def _step(self, state: State, seen: Seen) -> State:
        if isinstance(state, SparseState):
            return sparse_step(state, seen, self.ball, self._stages)
        assert isinstance(state, ApgdState)
        if len(self._stages) > 1:
            return staged_step(self._searches, state, seen)
        after, _, halved = self._checkpoints.look_back(state, seen)
        here = torch.where(along(halved, after.best), after.best, state.query)
        grad = torch.where(along(halved, after.best), after.best_grad, seen.grad)
        query = self._moved(state, here, grad, after.step_size)
        return ApgdState(**(vars(after) | {"query": query}), old=here)

    def _paced(self, pace: float, state: State, seen: Seen, moved: State) -> State:
        assert isinstance(state, PacedState | PacedSparseState)
        start = self._before_last_ball
        lead = state.lead.after(state, seen, start)
        most = at(state.queries, allowed(pace, self._stages[-1].steps, start=start), lead.first)
        # In a larger ball the margin may be below zero, and a share of it means nothing.
        given_up = most.isfinite() & (lead.least > lead.first * most)
        return type(state)(**(vars(moved) | {"done": moved.done | given_up}), lead=lead)

    def _moved(self, state: ApgdState, here: Tensor, grad: Tensor, step_size: Tensor) -> Tensor:
        x = state.trial.x
        target = self.ball.climb(x, here, grad, along(step_size, x))
        share = along(torch.where(state.queries == 0, 1.0, 0.75).to(x), x)
        return self.ball.project(x, here + share * (target - here) + (1 - share) * (here - state.old))
