"""NI-FGSM: momentum with Nesterov's look-ahead: the gradient is taken where the velocity is about to lead.

Lin et al. 2020, arXiv:1908.06281. The look-ahead point may lie outside the ball, as in the paper; it then counts for
nothing. Bad at: white-box strength, as MI-FGSM is.
"""

from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from robustkit import losses
from robustkit.protocol import Attack, Cost, Seen, State, Trials, begin
from robustkit.rows import along

from .mifgsm import normalised


@dataclass(frozen=True)
class NesterovState(State):
    """Momentum and the iterate; the query looks ahead of it."""

    point: Tensor  # [B, *S] the iterate, in the ball
    velocity: Tensor  # [B, *S] decayed sum of normalised gradients


@dataclass(frozen=True)
class NIFGSM(Attack):
    """Nesterov iterative fast gradient sign method.

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

    @property
    def step_length(self) -> float:
        """The step size that is used."""
        return self.ball.eps / self.steps if self.step_size is None else self.step_size

    def init(self, trials: Trials) -> NesterovState:
        return NesterovState(**vars(begin(trials, trials.x)), point=trials.x, velocity=torch.zeros_like(trials.x))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss(self.loss)(logits, trials.y, trials.target)

    def step(self, state: State, seen: Seen) -> NesterovState:
        assert isinstance(state, NesterovState)
        velocity = self.decay * state.velocity + normalised(seen.grad)
        moved = state.point + self.step_length * self.ball.steepest(velocity, state.point)
        point = self.ball.project(state.trial.x, moved)
        asked = state.asked + 1
        done = asked >= self.steps
        # The last look-ahead is not asked: the iterate itself is judged.
        query = torch.where(along(done, point), point, point + self.step_length * self.decay * velocity)
        return NesterovState(state.trial, query, asked, done, point, velocity)
