"""NAME: what it does, in one sentence.

Authors Year, arXiv:NUMBER. Ours differs: what we changed, and why.
Bad at: what nobody should expect of it.

Copy this file to attacks/name.py: the file's name is the attack's name on the command line, and the contract suite,
tests/test_contract.py, tests whatever it finds. Schedules read `state.queries`; noise comes from `state.trial.key`;
nothing is reduced over rows.
"""

from dataclasses import KW_ONLY, dataclass, replace

from torch import Tensor

from robustkit.primitives import losses
from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin


@dataclass(frozen=True)
class Template(Attack):
    """One sentence: what the caller gets.

    Args:
        steps: gradient steps.
    """

    _: KW_ONLY
    steps: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(1, "steps")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.steps + 1, self.steps)

    def init(self, trials: Trials) -> State:
        return begin(trials, trials.x)

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return losses.loss("log-odds")(logits, trials.y, trials.loss_target)

    def step(self, state: State, seen: Seen) -> State:
        queries = state.queries + 1
        query = self.ball.climb(state.trial.x, state.query, seen.grad, self.ball.eps / self.steps)
        return replace(state, query=query, queries=queries, done=queries >= self.steps)
