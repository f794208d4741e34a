"""Auto-PGD: projected gradient ascent with momentum whose step size halves by itself, so that it needs no tuning.

Croce & Hein 2020, arXiv:2003.01690, algorithm 1; L1 from Croce & Hein 2021, arXiv:2103.01208 (in `apgd_l1.py`); the
rule for the step size, and what differs, is in `_checkpoints.py`. "APGD-CE" is loss="log-odds" (the same order and
direction as cross-entropy, without its saturation), or literally "ce". "APGD-T" is loss="dlr" with targets=9.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from robustkit.primitives.ascent import Ascent
from robustkit.primitives.protocol import Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._starts import random_direction
from ._checkpoints import Checkpoints, CheckpointState
from ._stages import BallStage, shrinking, staged_step
from .apgd_l1 import SparseState, published, sparse_begin, sparse_cost, sparse_step

_WIDEST = 1e6  # as far as a radius need go: the ball holds every image


@dataclass(frozen=True)
class ApgdState(CheckpointState):
    """The state of one trial (Linf and L2)."""

    old: Tensor  # [B, *S] the iterate before the query


@dataclass(frozen=True)
class APGD(Ascent):
    """Auto-PGD on any of the losses, in Linf, L2 or L1.

    Args:
        steps: gradient steps per trial.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
        rho: share of steps that must raise the loss for the step size to stay.
        start_radius: radius of the ball in which the search begins, in units of eps; it is halved in stages down to
            eps (`_stages.py`). None is as published: 1, and in L1 stages of 3, 2 and 1.
    """

    _: KW_ONLY
    steps: int = 100
    rho: float = 0.75
    start_radius: float | None = None

    norms = ("Linf", "L2", "L1")
    keeps_best = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "rho")
        self.at_least_or_none(1.0, "start_radius")

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
        """One attack for the ball of each stage (Linf and L2)."""
        if len(self._stages) == 1:
            return [self]
        widest = 1.0 if self.ball.norm == "Linf" else _WIDEST
        return [replace(self, eps=min(radius * self.ball.eps, widest), steps=steps, start_radius=None)
                for radius, steps in self._stages]  # fmt: skip

    def init(self, trials: Trials) -> State:
        if self.ball.norm == "L1":
            return sparse_begin(trials, self.ball, self._stages)
        widest = self._searches[0].ball
        # A random point on the ball's surface: noise scaled to its radius.
        direction = random_direction(widest, trials.x, trials.key)
        return self._searches[0].begin_at(trials, widest.project(trials.x, trials.x + widest.eps * direction))

    def begin_at(self, trials: Trials, start: Tensor) -> ApgdState:
        """The state before the first query, which is at `start` `[B, *S]`, a point of the ball (Linf and L2)."""
        return ApgdState(**vars(self._checkpoints.begin(trials, start, 2 * self.ball.eps)), old=start)

    def step(self, state: State, seen: Seen) -> State:
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

    def _moved(self, state: ApgdState, here: Tensor, grad: Tensor, step_size: Tensor) -> Tensor:
        x = state.trial.x
        target = self.ball.climb(x, here, grad, along(step_size, x))
        share = along(torch.where(state.queries == 0, 1.0, 0.75).to(x), x)
        return self.ball.project(x, here + share * (target - here) + (1 - share) * (here - state.old))
