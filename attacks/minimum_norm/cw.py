"""C&W: Adam on the squared distance plus a weighted margin, in a space in which every point is a valid image.

Carlini & Wagner 2017, arXiv:1608.04644, section V-A: the L2 attack with the loss f_6 and a binary search for the
weight. Ours differs: black and white are less far away in that space, so that such pixels move in fewer steps; each
descent begins where the previous one ended, or at the nearest error once there is one, so that no step is repeated, and
has 1,000 steps instead of 10,000; an early end concerns one image, not the whole batch, and only descents without an
error.
Bad at: cost: it takes thousands of queries for what DDN and FMN find in a hundred.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives.nearest import NearestState, begin_nearest, nearest
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials
from robustkit.primitives.rows import along

from .._adam import Moments, adam, at_rest
from .._starts import first_query
from ._margins import error_margin
from ._weights import WeightSearch, begin_search, searched

# Factor of the values, from -1 to 1, before the inverse tanh, which is infinite for black and white. The authors'
# 1 - 1e-6 leaves these so far away that they do not begin to move in about a hundred steps.
_INSIDE = 0.99


@dataclass(frozen=True)
class CwState(NearestState):
    """The state of one trial."""

    weight: WeightSearch
    position: Tensor  # [B, *S] the point of the unbounded space that stands for the query
    moments: Moments


@dataclass(frozen=True)
class CW(Attack):
    """Carlini & Wagner's attack in L2.

    Args:
        steps: gradient steps of a descent.
        searches: number of descents, each with another weight.
        step_size: step size of Adam.
        first_weight: weight of the margin in the first descent; c in the paper.
        confidence: least margin of an error; kappa in the paper.
        abort_early: end a descent that has had no error when a tenth of its steps makes no progress.
    """

    _: KW_ONLY
    steps: int = 1000
    searches: int = 9
    step_size: float = 0.01
    first_weight: float = 1e-3
    confidence: float = 0.0
    abort_early: bool = True

    norms = ("L2",)
    seeks_nearest = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps", "searches")
        self.at_least(0.0, "confidence")
        self.positive("step_size", "first_weight")

    @property
    def cost(self) -> TrialCost:
        queries = self.searches * self.steps
        return TrialCost(queries + 1, queries)

    def init(self, trials: Trials) -> CwState:
        position = to_space(first_query(self.ball, trials))
        return CwState(
            **vars(begin_nearest(trials, to_image(position))), weight=begin_search(self.first_weight, trials.x),
            position=position, moments=at_rest(trials.x),
        )  # fmt: skip

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return error_margin(logits, trials)

    def step(self, state: State, seen: Seen) -> CwState:
        assert isinstance(state, CwState)
        x, change, lacking = state.trial.x, state.query - state.trial.x, self.confidence - seen.loss.to(state.query)
        closest = nearest(state, seen.label, self.ball, looked_at=(lacking <= 0) if self.confidence else True)
        loss = (change * change).flatten(1).sum(1) + state.weight.value * lacking.clamp(min=0)
        slope = 2 * change - along(state.weight.value * (lacking > 0), x) * seen.grad
        slope = slope * 2 * state.query * (1 - state.query)  # the derivative of the query by the position
        descent = adam(state.moments, slope, state.weight.step, self.steps)
        weight = searched(state.weight, closest.error, loss, self.steps, abort_early=self.abort_early)

        new_turn = weight.step == 0
        back = along(new_turn & closest.distance.isfinite(), x)
        position = torch.where(back, to_space(closest.point), state.position - self.step_size * descent.direction)
        done = weight.turn >= self.searches
        return CwState(
            trial=state.trial, query=torch.where(along(done, x), closest.or_else(state.query), to_image(position)),
            queries=state.queries + 1, done=done, nearest=closest.point, distance=closest.distance, weight=weight,
            position=position, moments=at_rest(x).where(new_turn, descent.moments),
        )  # fmt: skip


def to_space(image: Tensor) -> Tensor:
    """The point of the unbounded space that stands for an image: its inverse hyperbolic tangent."""
    # torch's own atanh rounds the last values of a tensor differently from the others.
    centred = (2 * image - 1) * _INSIDE
    return ((1 + centred) / (1 - centred)).log() / 2


def to_image(position: Tensor) -> Tensor:
    """The valid image that a point of the unbounded space stands for."""
    return (position.tanh() + 1) / 2
