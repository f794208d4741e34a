"""Additive noise: random points of the ball. The baseline that any attack with gradients must beat.

If noise breaks images that a gradient attack does not break, the model masks its gradients and is not robust (Athalye
et al. 2018, arXiv:1802.00420, section 3.1).
Bad at: inputs of many dimensions, as expected of a baseline.
"""

from dataclasses import KW_ONLY, dataclass, replace

from torch import Tensor

from robustkit.primitives.protocol import Attack, Seen, State, TrialCost, Trials, begin


@dataclass(frozen=True)
class Noise(Attack):
    """Uniform random points of the ball, each independent of the ones before.

    Args:
        queries: points tried, at least 2.
    """

    _: KW_ONLY
    queries: int = 100

    sees = "labels"
    guesses = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at_least(2, "queries")

    @property
    def cost(self) -> TrialCost:
        return TrialCost(self.queries, 0)

    def init(self, trials: Trials) -> State:
        return begin(trials, self.ball.random(trials.x, trials.key, 0))

    def objective(self, logits: Tensor, trials: Trials) -> Tensor:
        return logits.new_zeros(len(logits))

    def step(self, state: State, seen: Seen) -> State:
        return self.guess(state)

    def guess(self, state: State) -> State:
        """The next state: no answer changes it."""
        queries = state.queries + 1
        query = self.ball.random(state.trial.x, state.trial.key, queries)
        return replace(state, query=query, queries=queries, done=queries >= self.queries - 1)
