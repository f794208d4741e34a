"""The step that MI-FGSM, NI-FGSM and the transfer attacks share: along a decayed sum of normalised gradients.

Dong et al. 2018, arXiv:1710.06081. Each gradient is divided by its mean absolute value before it is added, as in later
code; the paper divides by the sum of absolute values, which gives the same direction.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from robustkit.primitives.ascent import EqualSteps, FixedStepAscent
from robustkit.primitives.ball import levelled
from robustkit.primitives.protocol import HookedAttack, Seen, State, Trials, begin
from robustkit.primitives.rows import along


@dataclass(frozen=True)
class MomentumState(State):
    """The iterate and its velocity; the query may look ahead of the iterate."""

    point: Tensor  # [B, *S] the iterate, in the ball
    velocity: Tensor  # [B, *S] decayed sum of normalised gradients


@dataclass(frozen=True)
class MomentumSteps(EqualSteps):
    """Base of attacks that take steps with momentum, on any objective.

    Args:
        decay: factor of the velocity before a gradient is added; mu in the paper.
    """

    _: KW_ONLY
    decay: float = 1.0

    norms = ("Linf", "L2")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "decay")

    def accelerated(self, velocity: Tensor, grad: Tensor) -> Tensor:
        """`[B, *S]` the velocity after one more gradient."""
        return self.decay * velocity + normalised(grad)


@dataclass(frozen=True)
class Momentum(MomentumSteps, FixedStepAscent):
    """Base of iterative fast gradient sign attacks with momentum."""

    def init(self, trials: Trials) -> MomentumState:
        return MomentumState(**vars(begin(trials, trials.x)), point=trials.x, velocity=torch.zeros_like(trials.x))

    def step(self, state: State, seen: Seen) -> MomentumState:
        assert isinstance(state, MomentumState)
        velocity = self.accelerated(state.velocity, seen.grad)
        point = self.ball.climb(state.trial.x, state.point, velocity, self.step_length)
        queries = state.queries + 1
        state = MomentumState(state.trial, point, queries, queries >= self.steps, point, velocity)
        # The last look-ahead is not queried: the iterate itself is judged.
        return replace(state, query=torch.where(along(state.done, point), point, self.ahead(state)))

    @abstractmethod
    def ahead(self, state: MomentumState) -> Tensor:
        """`[B, *S]` the point at which the next gradient is taken."""

    def look_ahead(self, state: MomentumState) -> Tensor:
        """`[B, *S]` Nesterov's look-ahead point: where the velocity alone would lead in the next step."""
        return state.point + self.step_length * self.decay * self.in_steps(state.velocity)

    def in_steps(self, direction: Tensor) -> Tensor:
        """The direction rescaled to the ball's norm: a mean absolute value of 1 becomes the length of one step."""
        if self.ball.norm == "Linf":
            return direction
        return along(direction.flatten(1).abs().mean(1), direction) * self.ball.steepest(direction, direction)


@dataclass(frozen=True)
class HookedMomentum(Momentum, HookedAttack):
    """Base of attacks that are MI-FGSM on a network under hooks; a subclass has `hooks`."""

    def ahead(self, state: MomentumState) -> Tensor:
        return state.point


def normalised(grad: Tensor) -> Tensor:
    """Each row's gradient divided by its mean absolute value; zero stays zero."""
    grad = levelled(grad)
    return grad / along(grad.flatten(1).abs().mean(1).clamp(min=1e-12), grad)
