"""Ascent along conjugate gradients, with Auto-PGD's rule for the step size.

Yamamura et al. 2022, arXiv:2206.09628. Each direction is the gradient plus beta times the previous direction, with the
beta of Hestenes & Stiefel 1952: where the gradient changes linearly, a step along the new direction does not undo the
progress along the previous one. Ours differs: the direction is the gradient itself in the first step, and where the
gradient changes along the previous direction by no more than rounding (in a corner of the ball, between two points that
alternate).

The authors' code, which is also in ART, has the opposite sign of beta: `variant="reference"`.
"""

import math
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from robustkit.errors import unknown
from robustkit.primitives.ascent import Ascent
from robustkit.primitives.losses import LossFunction
from robustkit.primitives.protocol import Seen, State, Trials
from robustkit.primitives.rounding import wide
from robustkit.primitives.rows import along

from ._checkpoints import Checkpoints, CheckpointState

VARIANTS = ("paper", "reference")

_ROUNDING = 1e-6  # relative, of fp32 gradients


@dataclass(frozen=True)
class ConjugateState(CheckpointState):
    """The state of one trial."""

    grad_before: Tensor  # [B, *S] the gradient at the iterate before the query
    direction: Tensor  # [B, *S] the direction that led to the query; zero at the first query
    best_grad_before: Tensor  # [B, *S] the gradient at the iterate before the best one
    best_direction: Tensor  # [B, *S] the direction that led to the best iterate


@dataclass(frozen=True)
class ConjugateAscent(Ascent):
    """Base of conjugate gradient attacks; a subclass has `start` and `beta`.

    Args:
        steps: gradient steps per trial.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
        rho: share of steps that must raise the loss for the step size to stay.
        variant: "paper" is the formula of Hestenes & Stiefel, "reference" its negative, as in the authors' code.
    """

    _: KW_ONLY
    steps: int = 100
    loss: str | LossFunction = "margin"
    rho: float = 0.75
    variant: str = "paper"

    norms = ("Linf",)
    keeps_best = True
    periods: ClassVar[tuple[float, float, float]] = (0.22, 0.03, 0.06)  # `first`, `shorter`, `least` of `Checkpoints`

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "rho")
        if self.variant not in VARIANTS:
            raise unknown(f"variant of {type(self).__name__}", str(self.variant), VARIANTS)

    @abstractmethod
    def start(self, trials: Trials) -> Tensor:
        """`[B, *S]` the first query of the first restart; later restarts begin at random points."""

    @abstractmethod
    def beta(self, grad: Tensor, before: Tensor, direction: Tensor) -> Tensor:
        """`[B]` factor of the previous direction; NaN leaves that direction out.

        Args:
            grad: `[B, *S]` the gradient at the iterate.
            before: `[B, *S]` the gradient at the previous iterate.
            direction: `[B, *S]` the previous direction.
        """

    @cached_property
    def _checkpoints(self) -> Checkpoints:
        return Checkpoints(self.steps, self.rho, *self.periods)

    def init(self, trials: Trials) -> ConjugateState:
        again = along(trials.restart > 0, trials.x)
        start = torch.where(again, self.ball.random(trials.x, trials.key, 0), self.start(trials))
        zeros = torch.zeros_like(start)
        return ConjugateState(
            **vars(self._checkpoints.begin(trials, start, 2 * self.ball.eps)),
            grad_before=zeros, direction=zeros, best_grad_before=zeros, best_direction=zeros,
        )  # fmt: skip

    def step(self, state: State, seen: Seen) -> ConjugateState:
        assert isinstance(state, ConjugateState)
        after, better, halved = self._checkpoints.look_back(state, seen)
        better, halved = along(better, state.best), along(halved, state.best)
        best_before = torch.where(better, state.grad_before, state.best_grad_before)
        best_direction = torch.where(better, state.direction, state.best_direction)

        here = torch.where(halved, after.best, state.query)
        grad = torch.where(halved, after.best_grad, seen.grad)
        before = torch.where(halved, best_before, state.grad_before)
        last = torch.where(halved, best_direction, state.direction)
        beta = self.beta(grad, before, last)
        beta = along(beta if self.variant == "paper" else -beta, grad)
        kept = beta * wide(last)
        direction = (wide(grad) + torch.where(beta.isfinite() & kept.isfinite(), kept, 0.0)).to(grad)
        query = self.ball.climb(state.trial.x, here, direction, along(after.step_size, here))
        return ConjugateState(
            **(vars(after) | {"query": query}), grad_before=grad, direction=direction,
            best_grad_before=best_before, best_direction=best_direction,
        )  # fmt: skip


def hestenes_stiefel(grad: Tensor, before: Tensor, direction: Tensor) -> Tensor:
    """`[B]` float64 the beta that makes the next direction conjugate: orthogonal to the change of the gradient.

    NaN where the gradient changes along `direction` by no more than rounding. Float64, because products of small fp32
    gradients underflow.
    """
    grad, before, direction = (wide(each).flatten(1) for each in (grad, before, direction))
    change = before - grad
    along_direction = (direction * change).sum(1)
    rounding = _ROUNDING * direction.norm(dim=1) * grad.norm(dim=1)
    return (-(grad * change).sum(1) / along_direction).where(along_direction.abs() > rounding, math.nan)
