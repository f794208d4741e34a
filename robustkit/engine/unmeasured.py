"""Outcomes of images that stand, until their nearness to the wrong classes is measured.

A point takes a pass for each class, so it waits for others: a batch that is half empty costs as much as a full one.
"""

from collections.abc import Iterator
from dataclasses import replace

from robustkit.classifier.session import Session
from robustkit.engine.jobs import Outcome
from robustkit.engine.margins import Margins
from robustkit.engine.nearness import measured
from robustkit.engine.patience import Patience
from robustkit.primitives.protocol import BestState
from robustkit.primitives.rows import Rows

_TOGETHER = 64  # points per measurement


class Unmeasured:
    """A queue of outcomes, each with the state that its trial ended with.

    Args:
        session: of the model.
        margins: to measure with.
        patience: seconds that an outcome waits for others, or longer where measuring takes longer.
    """

    def __init__(self, session: Session, margins: Margins, patience: float) -> None:
        self.session, self.margins, self.patience = session, margins, Patience(patience)
        self._waiting: list[tuple[Outcome, BestState]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, outcome: Outcome, state: BestState) -> None:
        """Queue an outcome with its one row of a state."""
        self.patience.wait()
        self._waiting.append((outcome, state))

    def measured(self, *, last: bool) -> Iterator[Outcome]:
        """Outcomes with their nearness, once enough of them wait or if nothing will join them."""
        while len(self) >= _TOGETHER or (self._waiting and (last or self.patience.over)):
            part, self._waiting = self._waiting[:_TOGETHER], self._waiting[_TOGETHER:]
            with self.patience.computing():
                state = Rows.cat([state for _, state in part])
                nearness = measured(self.session, self.margins, state, state.best)
            if self._waiting:
                self.patience.wait()
            for (outcome, _), near in zip(part, nearness, strict=True):
                cost = near.cost
                yield replace(
                    outcome, nearness=near, forwards=outcome.forwards + cost.forwards,
                    backwards=outcome.backwards + cost.backwards,
                )  # fmt: skip
