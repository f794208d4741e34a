"""Bases for attacks that take one gradient step per query on one of the losses."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

from torch import Tensor
from typing_extensions import Self

from robustkit.primitives import losses
from robustkit.primitives.ball import FREE, Ball
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin


@dataclass(frozen=True)
class GradientSteps(Attack):
    """Base of attacks that take a number of gradient steps.

    Args:
        steps: gradient steps per trial.
    """

    _: KW_ONLY
    steps: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")


@dataclass(frozen=True)
class EqualSteps(GradientSteps):
    """Base of attacks whose gradient steps all have the same length.

    Args:
        step_size: length of a step, in units of the input; None is eps / steps, which just reaches the ball's surface.
    """

    _: KW_ONLY
    step_size: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least_or_none(0.0, "step_size")

    @property
    def step_length(self) -> float:
        """The step size in use."""
        return equal_step(self.step_size, self.ball, self.steps)


@dataclass(frozen=True)
class LossAttack(Attack):
    """Base of attacks that maximise a loss.

    Args:
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or one of your own as in `losses.loss`.
    """

    _: KW_ONLY
    loss: str | losses.LossFunction = "log-odds"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.climbed

    @cached_property
    def climbed(self) -> losses.Loss:
        """The loss that is maximised."""
        return losses.loss(self.loss)

    @property
    def faults(self) -> tuple[str, ...]:
        return self.climbed.faults

    def with_built_in_loss(self) -> Self:
        return self if self.climbed.own is None else replace(self, loss="log-odds")

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return self.climbed(logits, trials.y, trials.loss_target)


@dataclass(frozen=True)
class Ascent(LossAttack, GradientSteps):
    """Base of attacks that query one gradient per step; a subclass has `init` and `step`."""

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 1, self.steps)


@dataclass(frozen=True)
class FixedStepAscent(EqualSteps, Ascent):
    """Base of ascents whose steps all have the same length."""


class SteepestAscent(FixedStepAscent):
    """Base of ascents that follow the steepest direction and project after each step; a subclass has `start`."""

    @abstractmethod
    def start(self, trials: Trials) -> Tensor:
        """`[B, *S]` the first query."""

    def init(self, trials: Trials) -> State:
        return begin(trials, self.start(trials))

    def step(self, state: State, seen: Seen) -> State:
        queries = state.queries + 1
        query = self.ball.climb(state.trial.x, state.query, seen.grad, self.step_length)
        return replace(state, query=query, queries=queries, done=queries >= self.steps)


def equal_step(step_size: float | None, ball: Ball, steps: int) -> float:
    """The step size in use: None stands for eps / steps, and in a frame for 1 / steps."""
    return step_unit(ball) / steps if step_size is None else step_size


def step_unit(ball: Ball) -> float:
    """What step sizes are measured in: `eps`, or the range of a value where values are free."""
    return 1.0 if ball.norm in FREE else ball.eps
