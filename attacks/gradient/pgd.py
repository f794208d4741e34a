"""PGD: repeated steepest ascent from a random start, projected onto the ball after each step.

Madry et al. 2018, arXiv:1706.06083. Ours differs: the loss is the non-saturating form of cross-entropy, L1 steps move
the largest 5 % of the gradient's values (Tramer & Boneh 2019), and an image that is broken stops costing. Bad at:
models that mask gradients, and at a large `step_size` with few `steps`.
"""

from dataclasses import KW_ONLY, dataclass, replace

from robustkit.primitives.ascent import Stepped
from robustkit.primitives.protocol import Seen, State, Trials, begin


@dataclass(frozen=True)
class PGD(Stepped):
    """Projected gradient descent (on the negated loss).

    Args:
        steps: gradient steps per trial.
        step_size: length of a step, in units of the input; None is 2.5 * eps / steps (L0: 0.04 for a mean value).
        random_start: begin at a random point of the ball instead of the image itself.
        loss: "log-odds", "ce", "margin" or "dlr".
    """

    _: KW_ONLY
    steps: int = 40
    random_start: bool = True

    @property
    def step_length(self) -> float:
        """The step size that is used."""
        if self.step_size is not None:
            return self.step_size
        return 0.04 if self.ball.norm == "L0" else 2.5 * self.ball.eps / self.steps

    def init(self, trials: Trials) -> State:
        start = self.ball.random(trials.x, trials.key, 0) if self.random_start else trials.x
        return begin(trials, start)

    def step(self, state: State, seen: Seen) -> State:
        queries = state.queries + 1
        query = self.ball.climb(state.trial.x, state.query, seen.grad, self.step_length)
        return replace(state, query=query, queries=queries, done=queries >= self.steps)
