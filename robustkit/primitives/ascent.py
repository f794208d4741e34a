"""What attacks share that climb one of the losses in a number of steps."""

from dataclasses import KW_ONLY, dataclass

from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.protocol import Attack, TrialCost, Trials


@dataclass(frozen=True)
class Ascent(Attack):
    """One gradient per step.

    Args:
        steps: gradient steps per trial.
        loss: "log-odds", "ce", "margin" or "dlr".
    """

    _: KW_ONLY
    steps: int = 10
    loss: str = "log-odds"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        losses.loss(self.loss)

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 1, self.steps)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss(self.loss)(logits, trials.y, trials.loss_target)


@dataclass(frozen=True)
class Stepped(Ascent):
    """Steps of equal length.

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
        """The step size that is used."""
        return self.ball.eps / self.steps if self.step_size is None else self.step_size
