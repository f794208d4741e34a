"""NAME: what the attack does, in one sentence.

Authors Year, arXiv:NUMBER, algorithm N. Ours differs: what we changed, and why.
Bad at: the models, images or budgets for which another attack is the better choice.

Copy this file to attacks/FOLDER/name.py, or anywhere outside of the package; docs/new-attack.md explains each part. In
the package, the name of the file is the name of the attack, and tests/test_contract.py tests it without further edits.

Each row is a trial of its own, so `step` never takes a sum, mean or maximum over rows. A schedule reads the row's own
counter, `state.queries`. Random numbers come from `state.trial.key`.
"""

from dataclasses import dataclass, replace

from robustkit.primitives.ascent import Ascent
from robustkit.primitives.protocol import Seen, State, Trials, begin


@dataclass(frozen=True)
class Template(Ascent):
    """The full name of the attack, and the norms that it has if they are few.

    Args:
        steps: gradient steps per trial.
        loss: "log-odds", "ce", "margin", "dlr", "softmax-margin", or a function of your own (`losses.loss`).
    """

    def init(self, trials: Trials) -> State:
        return begin(trials, trials.x)

    def step(self, state: State, seen: Seen) -> State:
        queries = state.queries + 1
        query = self.ball.climb(state.trial.x, state.query, seen.grad, self.ball.eps / self.steps)
        return replace(state, query=query, queries=queries, done=queries >= self.steps)
