"""What answers queries and passes verdicts: one oracle each for plain, randomized and smoothed models."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor

from robustkit.classifier.reference import Reference
from robustkit.classifier.search import Search
from robustkit.primitives.protocol import Attack, Seen, State


class OracleCost(NamedTuple):
    """Passes of one image."""

    query: int  # forwards for one query, and as many backwards for its gradient
    verdict: int  # forwards for one verdict


class Oracle(Protocol):
    """A model as attacks query it and as verdicts see it."""

    @property
    def cost(self) -> OracleCost:
        """What a query and a verdict cost."""

    def check(self, attack: Attack) -> None:
        """Check that the attack can query this oracle.

        Raises:
            UserError: it cannot.
        """

    def query(self, attack: Attack, state: State) -> Seen:
        """What `attack` may see of the search network at `state.query`, row by row."""

    def judge(self, points: Tensor) -> Tensor:
        """`[n, K]` scores of the unmodified model at points `[n, *S]` in [0, 1]: logits, or votes."""

    def decide(self, scores: Tensor, tests: int = 1) -> Tensor:
        """`[n]` int64 classes that scores `[n, K]` of `judge` speak for; -1 where a smoothed model abstains.

        Args:
            scores: of `judge`.
            tests: how many points of one image may be judged; of a smoothed model all verdicts together keep to alpha.
        """


@dataclass(frozen=True)
class Plain:
    """A model that answers the same query alike every time."""

    reference: Reference
    search: Search

    @property
    def cost(self) -> OracleCost:
        """One pass each."""
        return OracleCost(1, 1)

    def check(self, attack: Attack) -> None:
        """Every attack can."""

    def query(self, attack: Attack, state: State) -> Seen:
        """In one batch, whose size is proven."""

        def ask(rows: Tensor) -> Seen:
            # A tile is never as long as the state, so as many rows are all of them, and need no copy.
            return self.search.answer(attack, state if len(rows) == len(state) else state.take(rows))

        return self.reference.sizes.answer(ask, len(state), self.search.kind_of(attack), state.query.device)

    def judge(self, points: Tensor) -> Tensor:
        """fp32 logits."""
        return self.reference.logits(points)

    def decide(self, scores: Tensor, tests: int = 1) -> Tensor:
        """The class of the largest logit."""
        return scores.argmax(1)
