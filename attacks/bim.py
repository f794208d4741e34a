"""BIM (I-FGSM): FGSM in small steps from the image itself, projected after each.

Kurakin et al. 2017, arXiv:1607.02533. Ours differs: the non-saturating form of cross-entropy, and any norm.
Bad at: images whose own gradient vanishes; PGD's random start leaves those points.
"""

from dataclasses import KW_ONLY, dataclass, replace

from torch import Tensor

from robustkit import losses
from robustkit.protocol import Attack, Cost, Seen, State, Trials, begin


@dataclass(frozen=True)
class BIM(Attack):
    """Basic iterative method.

    Args:
        steps: gradient steps.
        step_size: length of a step, in units of the input; None is eps / steps, which just reaches the ball's surface.
        loss: "log-odds", "ce", "margin" or "dlr".
    """

    _: KW_ONLY
    steps: int = 10
    step_size: float | None = None
    loss: str = "log-odds"

    norms = ("Linf", "L2", "L1")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")
        self.at_least_or_none(0.0, "step_size")
        losses.loss(self.loss)

    @property
    def cost(self) -> Cost:
        return Cost(self.steps + 1, self.steps)

    def init(self, trials: Trials) -> State:
        return begin(trials, trials.x)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss(self.loss)(logits, trials.y, trials.target)

    def step(self, state: State, seen: Seen) -> State:
        length = self.ball.eps / self.steps if self.step_size is None else self.step_size
        asked = state.asked + 1
        query = self.ball.climb(state.trial.x, state.query, seen.grad, length)
        return replace(state, query=query, asked=asked, done=asked >= self.steps)
