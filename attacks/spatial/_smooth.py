"""The shared part of attacks on smooth parameters: Adam on the loss minus the weighted total variation."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache

from torch import Tensor

from robustkit.primitives.ascent import Ascent
from robustkit.primitives.protocol import Seen, State, Trials, begin
from robustkit.primitives.rows import along

from .._adam import Moments, adam, at_rest
from .._schedules import at, table
from ._total_variation import roughness_slope

_START = 0.01  # share of a random field, where trials start: at 0, bilinear interpolation has one-sided slopes only
_LAST = 1e-3  # last weight as a share of the first: no fixed weight suits networks whose logits differ in size


@dataclass(frozen=True)
class SmoothState(State):
    """The state of one trial."""

    moments: Moments


@dataclass(frozen=True)
class SmoothAscent(Ascent):
    """Base of attacks on smooth parameters.

    Args:
        steps: gradient steps per trial.
        loss: "margin", which is the papers', "log-odds", "ce", "dlr", or a function of your own (`losses.loss`).
        step_size: length of Adam's steps, in units of the parameters; None is a share of eps.
        smoothness: first weight of the parameters' total variation; tau in the papers.
    """

    loss: str = "margin"
    _: KW_ONLY
    steps: int = 100
    step_size: float | None = None
    smoothness: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_size is not None:
            self.positive("step_size")
        self.at_least(0.0, "smoothness")

    @property
    @abstractmethod
    def step_length(self) -> float:
        """The step size in use."""

    def init(self, trials: Trials) -> SmoothState:
        start = begin(trials, self.ball.random(trials.x, trials.key, 0) * _START)
        return SmoothState(**vars(start), moments=at_rest(start.query))

    def step(self, state: State, seen: Seen) -> SmoothState:
        assert isinstance(state, SmoothState)
        queries = state.queries + 1
        weight = at(state.queries, _falling(self.smoothness, self.steps), seen.grad)
        rise = seen.grad - along(weight, seen.grad) * roughness_slope(state.query)
        ascent = adam(state.moments, rise, state.queries, self.steps)
        query = self.ball.project(state.trial.x, state.query + self.step_length * ascent.direction)
        return replace(state, query=query, queries=queries, done=queries >= self.steps, moments=ascent.moments)


@cache
def _falling(first: float, steps: int) -> Tensor:
    """`[steps]` from `first` to `_LAST` of it, by one factor per step."""
    return table(first * _LAST ** (turn / steps) for turn in range(steps))
