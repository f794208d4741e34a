"""ILA: fine-tunes an adversarial point so that a middle layer's features move further in the direction they moved.

Huang et al. 2019, arXiv:1907.10823 (ILAP, the form with the projection loss). First come `guide_steps` of iterative
FGSM (the guide). The `steps` after them raise the change of the features, projected onto that at the guide's last
point. The paper goes on from that point; the authors' code starts again from the image: `variant="reference"`. Ours
differs: the projection is computed for each image, where the authors' code takes one dot product over the batch.
Bad at: white-box strength, which it gives up for transfer; late layers, where it acts like the guide.
"""

from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.errors import unknown
from robustkit.primitives import losses
from robustkit.primitives.ascent import equal_step
from robustkit.primitives.protocol import FeatureAttack, FeatureSeen, Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import along

VARIANTS = ("paper", "reference")


@dataclass(frozen=True)
class ProjectionState(State):
    """The layer's features of the image, and how the guide changed them."""

    clean: Tensor  # [B, *F] features of the image
    guide: Tensor  # [B, *F] their change at the guide's last point; zero before that query


@dataclass(frozen=True)
class ILA(FeatureAttack):
    """Intermediate level attack.

    Args:
        guide_steps: gradient steps that give the direction.
        steps: gradient steps along it.
        step_size: length of a step, in units of the input; None is eps / guide_steps in the guide, then eps / steps.
        loss: objective of the guide: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own
            (`losses.loss`).
        variant: "paper" goes on from the guide's point, "reference" from the image.
    """

    _: KW_ONLY
    guide_steps: int = 10
    steps: int = 10
    step_size: float | None = None
    loss: str | losses.LossFunction = "log-odds"
    variant: str = "paper"

    norms = ("Linf", "L2")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "guide_steps", "steps")
        self.at_least_or_none(0.0, "step_size")
        _ = self.climbed
        if self.variant not in VARIANTS:
            raise unknown("variant of ILA", str(self.variant), VARIANTS)

    @cached_property
    def climbed(self) -> losses.Loss:
        """The loss that is maximised."""
        return losses.loss(self.loss)

    @property
    def faults(self) -> tuple[str, ...]:
        return self.climbed.faults

    def with_built_in_loss(self) -> Self:
        return self if self.climbed.own is None else replace(self, loss="log-odds")

    @property
    def queries(self) -> int:
        """Queries of one trial: the guide's last point is one more unless the attack goes on from it."""
        return self.guide_steps + self.steps + (self.variant == "reference")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.queries + 1, self.queries)

    def init(self, trials: Trials) -> ProjectionState:
        zeros = trials.x.new_zeros(len(trials), *self.feature_shape)
        return ProjectionState(**vars(begin(trials, trials.x)), clean=zeros, guide=zeros)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return self.climbed(logits, trials.y, trials.loss_target)

    def feature_objective(self, logits: Tensor, features: Tensor, state: State) -> Tensor:
        assert isinstance(state, ProjectionState)
        guide = self._guided(state, features.detach())
        along_guide = ((features - state.clean) * guide).flatten(1).sum(1)
        # Divided by the guide's squared length, as in the authors' code, so that it is 1 at the guide's last point.
        projection = along_guide / guide.square().flatten(1).sum(1).clamp(min=torch.finfo(guide.dtype).tiny)
        return torch.where(state.queries < self.guide_steps, self.objective(logits, state.trial), projection)

    def step(self, state: State, seen: Seen) -> ProjectionState:
        assert isinstance(state, ProjectionState)
        assert isinstance(seen, FeatureSeen)
        features = seen.features.to(state.clean)
        clean = torch.where(along(state.queries == 0, features), features, state.clean)
        guide = self._guided(state, features)
        guiding, steps = (equal_step(self.step_size, self.ball, count) for count in (self.guide_steps, self.steps))
        length = torch.where(state.queries < self.guide_steps, guiding, steps)
        query = self.ball.climb(state.trial.x, state.query, seen.grad, along(length, seen.grad).to(seen.grad))
        if self.variant == "reference":
            query = torch.where(along(state.queries == self.guide_steps, query), state.trial.x, query)
        queries = state.queries + 1
        return ProjectionState(state.trial, query, queries, queries >= self.queries, clean, guide)

    def _guided(self, state: ProjectionState, features: Tensor) -> Tensor:
        """How the guide changed the features: set at the query of its last point."""
        return torch.where(along(state.queries == self.guide_steps, features), features - state.clean, state.guide)
