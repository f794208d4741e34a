"""FIA: lowers the features on which the true class depends most, because other networks are likely to use them too.

Wang et al. 2021, arXiv:2107.14185. The importance of a feature is the gradient of the class's logit with respect to it,
summed over copies of the image with random values set to zero and scaled to length 1 per image. Steps with momentum
then lower the sum of importance times feature. The logit is that of the paper and of the authors' code; other
implementations take the softmax, which saturates. Ours adds a targeted form: a trial that aims at a class raises the
features that are important for it.
Bad at: white-box strength, and late layers.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.protocol import FeatureAttack, FeatureSeen, Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import along

from ..gradient._momentum import MomentumSteps


@dataclass(frozen=True)
class ImportanceState(State):
    """The features' importance and the velocity of the momentum steps."""

    importance: Tensor  # [B, *F] summed gradients of the class's logit
    velocity: Tensor  # [B, *S] decayed sum of normalised gradients


@dataclass(frozen=True)
class FIA(MomentumSteps, FeatureAttack):
    """Feature importance-aware attack.

    Args:
        ensemble: number of masked copies of the image over which the importance is summed.
        drop: probability that a value is masked; the authors' code has 0.1, the paper 0.3 for ordinary targets.
    """

    _: KW_ONLY
    ensemble: int = 30
    drop: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "ensemble")
        self.at_least(0.0, "drop")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.ensemble + self.steps + 1, self.ensemble + self.steps)

    def init(self, trials: Trials) -> ImportanceState:
        zeros = trials.x.new_zeros(len(trials), *self.feature_shape)
        start = begin(trials, self._masked(trials, torch.zeros_like(trials.y)))
        return ImportanceState(**vars(start), importance=zeros, velocity=torch.zeros_like(trials.x))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        """`[B]` the logit of the class that the loss aims at, or else of the true class."""
        classes = torch.where(trials.loss_target >= 0, trials.loss_target, trials.y)
        return logits.gather(1, classes.unsqueeze(1)).squeeze(1)

    def feature_objective(self, logits: Tensor, features: Tensor, state: State) -> Tensor:
        assert isinstance(state, ImportanceState)
        size = state.importance.flatten(1).norm(dim=1).clamp(min=torch.finfo(features.dtype).tiny)
        weight = torch.where(state.trial.loss_target >= 0, 1, -1) / size
        weighted_sum = weight * (state.importance * features).flatten(1).sum(1)
        return torch.where(self._measures_importance(state), self.objective(logits, state.trial), weighted_sum)

    def step(self, state: State, seen: Seen) -> ImportanceState:
        assert isinstance(state, ImportanceState)
        assert isinstance(seen, FeatureSeen)
        measures, trial, queries = self._measures_importance(state), state.trial, state.queries + 1
        summed = state.importance + seen.feature_grad.to(state.importance)
        importance = torch.where(along(measures, summed), summed, state.importance)
        # The momentum steps start from the image itself, after the queries of all masked copies.
        masked = torch.where(along(queries < self.ensemble, trial.x), self._masked(trial, queries), trial.x)
        velocity = self.accelerated(state.velocity, seen.grad)
        moved = self.ball.climb(trial.x, state.query, velocity, self.step_length)
        query = torch.where(along(measures, moved), masked, moved)
        velocity = torch.where(along(measures, velocity), torch.zeros_like(velocity), velocity)
        return ImportanceState(trial, query, queries, queries >= self.ensemble + self.steps, importance, velocity)

    def _measures_importance(self, state: State) -> Tensor:
        return state.queries < self.ensemble

    def _masked(self, trials: Trials, draw: Tensor) -> Tensor:
        return trials.x * (noise.uniform(trials.key, draw, trials.x.shape[1:]) >= self.drop).to(trials.x)
