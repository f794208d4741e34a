"""BIM (I-FGSM): FGSM in small steps from the image itself, projected after each.

Kurakin et al. 2017, arXiv:1607.02533. Ours differs: the non-saturating form of cross-entropy, and any norm.
Bad at: images whose own gradient vanishes; PGD's random start leaves those points.
"""

from dataclasses import dataclass, replace

from robustkit.primitives.ascent import Stepped
from robustkit.primitives.protocol import Seen, State, Trials, begin


@dataclass(frozen=True)
class BIM(Stepped):
    """Basic iterative method.

    Args:
        steps: gradient steps.
        step_size: length of a step, in units of the input; None is eps / steps, which just reaches the ball's surface.
        loss: "log-odds", "ce", "margin" or "dlr".
    """

    norms = ("Linf", "L2", "L1")

    def init(self, trials: Trials) -> State:
        return begin(trials, trials.x)

    def step(self, state: State, seen: Seen) -> State:
        queries = state.queries + 1
        query = self.ball.climb(state.trial.x, state.query, seen.grad, self.step_length)
        return replace(state, query=query, queries=queries, done=queries >= self.steps)
