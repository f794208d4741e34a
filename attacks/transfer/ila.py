"""ILA: fine-tunes an adversarial point so that a layer in the middle moves on in the direction it was moved.

Huang et al. 2019, arXiv:1907.10823 (ILAP, the form with the projection loss). First `guide_steps` of iterative FGSM,
then `steps` that climb the projection of the features' change onto the change at the guide's last point. The paper
goes on from that point; the authors' code starts again from the image: `variant="reference"`. It also takes one dot
product over the whole batch, where ours is of each row.
Bad at: white-box strength, which it gives away; late layers, where it is the guide once more.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit.errors import unknown
from robustkit.primitives import losses
from robustkit.primitives.protocol import FeatureAttack, FeatureSeen, Seen, State, TrialCost, Trials, begin
from robustkit.primitives.rows import along

VARIANTS = ("paper", "reference")


@dataclass(frozen=True)
class ProjectionState(State):
    """What the layer said of the image and of the guide's last point."""

    clean: Tensor  # [B, *F] features of the image
    guide: Tensor  # [B, *F] how the guide changed them; zero until it is known


@dataclass(frozen=True)
class ILA(FeatureAttack):
    """Intermediate level attack.

    Args:
        guide_steps: gradient steps that give the direction.
        steps: gradient steps along it.
        step_size: length of a step, in units of the input; None is eps by the number of steps of its kind.
        loss: of the guide: "log-odds", "ce", "margin" or "dlr".
        variant: "paper" goes on from the guide's point, "reference" from the image.
    """

    _: KW_ONLY
    guide_steps: int = 10
    steps: int = 10
    step_size: float | None = None
    loss: str = "log-odds"
    variant: str = "paper"

    norms = ("Linf", "L2")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "guide_steps", "steps")
        self.at_least_or_none(0.0, "step_size")
        losses.loss(self.loss)
        if self.variant not in VARIANTS:
            raise unknown("variant of ILA", str(self.variant), VARIANTS)

    @property
    def queries(self) -> int:
        """How often a trial asks: the guide's last point is one more query unless the search goes on from it."""
        return self.guide_steps + self.steps + (self.variant == "reference")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.queries + 1, self.queries)

    def init(self, trials: Trials) -> ProjectionState:
        nothing = trials.x.new_zeros(len(trials), *self.feature_shape)
        return ProjectionState(**vars(begin(trials, trials.x)), clean=nothing, guide=nothing)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss(self.loss)(logits, trials.y, trials.loss_target)

    def feature_objective(self, logits: Tensor, features: Tensor, state: State) -> Tensor:
        assert isinstance(state, ProjectionState)
        guide = self._guided(state, features.detach())
        along_guide = ((features - state.clean) * guide).flatten(1).sum(1)
        # By the guide's length squared, as in the authors' code: 1 at the guide's own point.
        projection = along_guide / guide.square().flatten(1).sum(1).clamp(min=torch.finfo(guide.dtype).tiny)
        return torch.where(state.queries < self.guide_steps, self.objective(logits, state.trial), projection)

    def step(self, state: State, seen: Seen) -> ProjectionState:
        assert isinstance(state, ProjectionState)
        assert isinstance(seen, FeatureSeen)
        features = seen.features.to(state.clean)
        clean = torch.where(along(state.queries == 0, features), features, state.clean)
        guide = self._guided(state, features)
        length = torch.where(state.queries < self.guide_steps, self._length(self.guide_steps), self._length(self.steps))
        moved = state.query + along(length, seen.grad).to(seen.grad) * self.ball.steepest(seen.grad, state.query)
        query = self.ball.project(state.trial.x, moved)
        if self.variant == "reference":
            query = torch.where(along(state.queries == self.guide_steps, query), state.trial.x, query)
        queries = state.queries + 1
        return ProjectionState(state.trial, query, queries, queries >= self.queries, clean, guide)

    def _guided(self, state: ProjectionState, features: Tensor) -> Tensor:
        """The guide's change of the features, known from the query at its last point on."""
        return torch.where(along(state.queries == self.guide_steps, features), features - state.clean, state.guide)

    def _length(self, steps: int) -> float:
        return self.ball.eps / steps if self.step_size is None else self.step_size
