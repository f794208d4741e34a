"""StAdv: a smooth flow field moves the pixels until the image is misclassified.

Xiao et al. 2018, arXiv:1801.02612: the loss less `smoothness` times the total variation of the flow. Ours differs: Adam
in place of L-BFGS; the flow is projected on the largest displacement, which the paper does not bound; and the weight
falls to a thousandth, because no fixed one suits networks whose logits differ in size.
Bad at: few steps; `pgd` needs fewer, for flows that show ten times as much.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives.ascent import Ascent
from robustkit.primitives.protocol import Seen, State, Trials, begin
from robustkit.primitives.rows import along

from .._adam import Moments, adam, at_rest
from .._schedules import at, table

_START = 0.01  # of a random flow: at whole pixels the slope of bilinear interpolation is that of one side only
_LAST = 1e-3  # of the first weight
_FLAT = 1e-8  # added to squared differences, whose root has no slope at 0


@dataclass(frozen=True)
class StAdvState(State):
    """The state of one trial."""

    moments: Moments


@dataclass(frozen=True)
class StAdv(Ascent):
    """Spatially transformed adversarial examples.

    Args:
        steps: gradient steps per trial.
        loss: "margin", which is the paper's, "log-odds", "ce", "dlr", or a function of your own (`losses.loss`).
        step_size: length of Adam's steps, in pixels; None is a tenth of eps.
        smoothness: first weight of the flow's total variation; tau in the paper.
    """

    loss: str = "margin"
    _: KW_ONLY
    steps: int = 100
    step_size: float | None = None
    smoothness: float = 0.05

    norms = ("flow",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_size is not None:
            self.positive("step_size")
        self.at_least(0.0, "smoothness")

    def init(self, trials: Trials) -> StAdvState:
        start = begin(trials, self.ball.random(trials.x, trials.key, 0) * _START)
        return StAdvState(**vars(start), moments=at_rest(start.query))

    def step(self, state: State, seen: Seen) -> StAdvState:
        assert isinstance(state, StAdvState)
        queries = state.queries + 1
        weight = at(state.queries, _falling(self.smoothness, self.steps), seen.grad)
        rise = seen.grad - along(weight, seen.grad) * roughness_slope(state.query)
        ascent = adam(state.moments, rise, state.queries, self.steps)
        length = self.ball.eps / 10 if self.step_size is None else self.step_size
        query = self.ball.project(state.trial.x, state.query + length * ascent.direction)
        return replace(state, query=query, queries=queries, done=queries >= self.steps, moments=ascent.moments)


@cache
def _falling(first: float, steps: int) -> Tensor:
    """`[steps]` from `first` to `_LAST` of it, by one factor per step."""
    return table(first * _LAST ** (turn / steps) for turn in range(steps))


def roughness(flow: Tensor) -> Tensor:
    """`[B]` total variation of flows `[B, 2, H, W]`: lengths of the differences of neighbours, summed over both."""
    total = torch.zeros_like(flow[:, 0, 0, 0])
    for axis in (2, 3):
        total = total + 2 * _length(flow.diff(dim=axis)).sum((1, 2, 3))
    return total


def roughness_slope(flow: Tensor) -> Tensor:
    """`[B, 2, *S]` the gradient of `roughness`."""
    slope = torch.zeros_like(flow)
    for axis in range(2, flow.dim()):
        change = flow.diff(dim=axis)
        pull = 2 * change / _length(change)
        side = flow.shape[axis]
        slope.narrow(axis, 1, side - 1).add_(pull)
        slope.narrow(axis, 0, side - 1).sub_(pull)
    return slope


def _length(change: Tensor) -> Tensor:
    squares = change.square()
    return (squares[:, :1] + squares[:, 1:] + _FLAT).sqrt()
