"""MI-FGSM: iterative FGSM whose direction gathers momentum (heavy ball), which transfers better between models.

Dong et al. 2018, arXiv:1710.06081. Each gradient is divided by its mean absolute value before it is added; the paper
divides by the sum, which is the same direction, and codes that followed use the mean. Bad at: white-box strength; a
step of eps / steps never comes back from a wrong start.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit import losses
from robustkit.protocol import Attack, Cost, Seen, State, Trials, begin
from robustkit.rows import along
from robustkit.threat import levelled


@dataclass(frozen=True)
class MomentumState(State):
    """Momentum, beside what every state has."""

    velocity: Tensor  # [B, *S] decayed sum of normalised gradients


@dataclass(frozen=True)
class MIFGSM(Attack):
    """Momentum iterative fast gradient sign method.

    Args:
        steps: gradient steps.
        step_size: length of a step, in units of the input; None is eps / steps.
        decay: share of the velocity kept per step.
        loss: "log-odds", "ce", "margin" or "dlr".
    """

    _: KW_ONLY
    steps: int = 10
    step_size: float | None = None
    decay: float = 1.0
    loss: str = "log-odds"

    norms = ("Linf", "L2")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.at_least(0.0, "decay")
        self.at_least_or_none(0.0, "step_size")
        losses.loss(self.loss)

    @property
    def cost(self) -> Cost:
        return Cost(self.steps + 1, self.steps)

    def init(self, trials: Trials) -> MomentumState:
        return MomentumState(**vars(begin(trials, trials.x)), velocity=torch.zeros_like(trials.x))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss(self.loss)(logits, trials.y, trials.target)

    def step(self, state: State, seen: Seen) -> MomentumState:
        assert isinstance(state, MomentumState)
        velocity = self.decay * state.velocity + normalised(seen.grad)
        length = self.ball.eps / self.steps if self.step_size is None else self.step_size
        moved = state.query + length * self.ball.steepest(velocity, state.query)
        asked = state.asked + 1
        query = self.ball.project(state.trial.x, moved)
        return MomentumState(state.trial, query, asked, asked >= self.steps, velocity)


def normalised(grad: Tensor) -> Tensor:
    """Each row's gradient divided by its mean absolute value; zero stays zero."""
    grad = levelled(grad)
    return grad / along(grad.flatten(1).abs().mean(1).clamp(min=1e-12), grad)
