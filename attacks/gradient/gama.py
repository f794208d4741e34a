"""GAMA-PGD: ascent on the margin of the probabilities, at first plus their distance from those of the clean image.

Sriramanan et al. 2020, arXiv:2011.14969. The distance is squared, and its weight falls to zero within the first quarter
of the steps. The attack begins in a random corner of the ball. Steps are 2 eps long, a tenth of that after 60 % of the
steps and a hundredth after 85 %. Ours differs: the image is queried first, which costs one more query, because the
authors' code takes the probabilities of the start point instead; once the weight is zero, the loss is the
non-saturating `softmax-margin`.
Bad at: confident models, whose probabilities hardly change around the image; few steps.
"""

from dataclasses import KW_ONLY, dataclass
from functools import cache

import torch
from torch import Tensor

from robustkit.primitives import losses, noise
from robustkit.primitives.ascent import GradientSteps
from robustkit.primitives.protocol import ClasswiseAttack, Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import along, surely_none, whole_vectors

from .._schedules import at, table


@dataclass(frozen=True)
class GamaState(State):
    """The state of one trial."""

    clean: Tensor  # [B, K] probabilities at the image; zero before it is queried


@dataclass(frozen=True)
class GAMA(ClasswiseAttack, GradientSteps):
    """Guided adversarial margin attack in Linf.

    Args:
        steps: gradient steps per trial, after the query of the image.
        weight: weight in the first step of the squared distance from the image's probabilities.
    """

    _: KW_ONLY
    steps: int = 100
    weight: float = 50.0

    norms = ("Linf",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(0.0, "weight")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 2, self.steps + 1)

    def init(self, trials: Trials) -> GamaState:
        return GamaState(**vars(begin(trials, trials.x)), clean=trials.x.new_zeros(len(trials), self.classes))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss("softmax-margin")(logits, trials.y, trials.loss_target)

    def objective_at(self, logits: Tensor, state: State) -> Tensor:
        assert isinstance(state, GamaState)
        margin = self.objective(logits, state.trial)
        if state.clean.shape[1] == 0:  # the image itself is queried
            return margin
        weight = self.weight * at(_turn(state), _weights(self.steps), logits)
        away = (logits.softmax(1) - state.clean.to(logits)).square().sum(1)
        # The exponential of `softmax-margin` is one plus the margin of the probabilities.
        raised = whole_vectors(torch.exp, margin)
        assert isinstance(raised, Tensor)
        return torch.where((weight > 0) & (state.queries > 0), raised + weight * away, margin)

    def step(self, state: State, seen: Seen) -> GamaState:
        assert isinstance(state, GamaState)
        first, x = along(state.queries == 0, state.query), state.trial.x
        length = self.ball.eps * at(_turn(state), _lengths(self.steps), seen.grad)
        query = self.ball.climb(x, state.query, seen.grad, along(length, seen.grad))
        if not surely_none(first):  # saves time and changes no row's value
            corner = x + self.ball.eps * noise.signs(state.trial.key, 0, x.shape[1:]).to(x)
            query = torch.where(first, self.ball.project(x, corner), query)
        clean = torch.where(along(state.queries == 0, seen.logits), seen.logits.softmax(1).to(x), state.clean)
        queries = state.queries + 1
        return GamaState(state.trial, query, queries, queries > self.steps, clean)


def _turn(state: State) -> Tensor:
    """`[B]` gradient steps so far."""
    return (state.queries - 1).clamp(min=0)


@cache
def _weights(steps: int) -> Tensor:
    """`[steps]` weights of the distance, from 1 to 0 within the first quarter of the steps."""
    quarter = max(steps // 4, 1)
    return table(max(0.0, 1 - turn / quarter) for turn in range(steps))


@cache
def _lengths(steps: int) -> Tensor:
    """`[steps]` lengths of the steps, in units of eps."""
    return table(2.0 * 0.1 ** ((turn >= int(0.6 * steps)) + (turn >= int(0.85 * steps))) for turn in range(steps))
