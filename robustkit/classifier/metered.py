"""The oracle of a server: every picture costs a request, so none is sent to fill a batch or to compare batches.

A query is a picture of 8 bits: the nearest one inside the ball. The model judges that very picture, so that a verdict
asks for nothing that was not answered before.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from robustkit.classifier.oracle import Look, OracleCost, PointVerdicts
from robustkit.classifier.reference import Reference
from robustkit.classifier.search import Search
from robustkit.primitives.levels import on_levels
from robustkit.primitives.protocol import Attack, Seen, State
from robustkit.statistics.single_draw import FreshDraws


@dataclass(frozen=True)
class Metered:
    """A server that answers the same picture alike every time, because its first answer is kept."""

    reference: Reference
    search: Search

    @property
    def cost(self) -> OracleCost:
        """One picture each."""
        return OracleCost(1, 1)

    def check(self, attack: Attack) -> None:
        """Every attack can that needs no gradients."""

    def query(self, attack: Attack, state: State, *, most: int | None = None) -> Seen:
        """At the picture of each query; a server gives no gradients."""
        if attack.ball.renders:  # what is rendered is rounded as it is sent
            return self.search.answer(attack, state)
        return self.search.answer(attack, replace(state, query=on_levels(attack.ball, state.trial.x, state.query)))

    def judge(self, points: Tensor) -> Tensor:
        """Its scores, or 1 and -1."""
        return self.reference.forward(points)

    def verdicts(self, points: Tensor, looks: Sequence[Look]) -> PointVerdicts:
        """The class of the largest score."""
        scores = self.judge(points)
        return PointVerdicts(scores, scores.argmax(1), [1] * len(points))

    def confidences(self, scores: Tensor, labels: Sequence[int]) -> list[float] | None:
        """None: a server does not say what its scores are."""
        return None

    def fresh_draws(self, points: Tensor, y: Sequence[int], looks: Sequence[Look]) -> list[FreshDraws] | None:
        """None: the first answer stays."""
        return None

    def sure(self, point: Tensor, scores: Tensor, label: int, other: int) -> bool:
        """An answer about a picture does not depend on others."""
        return True
