"""NAME: what it does, in one sentence.

Authors Year, arXiv:NUMBER. Ours differs: what we changed, and why.
Bad at: what nobody should expect of it.

Copy this file to attacks/FOLDER/name.py, or anywhere outside of the package, and see docs/new-attack.md. In the
package, the file's name is the attack's name, and tests/test_contract.py tests it without an edit. Schedules read
`state.queries`; noise comes from `state.trial.key`; nothing is reduced over rows.
"""

from dataclasses import dataclass, replace

from robustkit.primitives.ascent import Ascent
from robustkit.primitives.protocol import Seen, State, Trials, begin


@dataclass(frozen=True)
class Template(Ascent):
    """One sentence: what the caller gets.

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
