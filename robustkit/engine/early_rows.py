"""The rows of early trials among the slots (`robustkit.engine.early`)."""

from collections.abc import Callable

from robustkit.engine.candidates import Candidates
from robustkit.engine.early import EarlyTrials
from robustkit.engine.jobs import Trial
from robustkit.engine.slots import Slots
from robustkit.primitives.protocol import Attack, Seen, State


class EarlyRows:
    """Puts early trials into idle rows, and takes them out again.

    Args:
        early: the early trials of all images, in flight or not.
        slots: which they share with the trials whose turn it is.
        attack: whose trials they are.
    """

    def __init__(self, early: EarlyTrials, slots: Slots, attack: Attack) -> None:
        self.early, self.slots, self.attack = early, slots, attack

    @property
    def possible(self) -> int:
        """How many early trials could be in flight."""
        return len(self._rows) + self.early.left(self.slots.of(self.slots.live))

    def fill(self, begun: Callable[[Attack, list[Trial]], State]) -> None:
        """Begin as many early trials as there are idle rows; `begun` gives their first states."""
        live = self.slots.live
        trials = self.early.begin(self.slots.of(live), len(self.slots.trials) - len(live))
        if trials:
            self.slots.admit(trials, [begun(self.attack, trials)])

    def leave(self, count: int) -> None:
        """Leave at most so many early trials in flight, and forget the others, the last of an image first."""
        in_flight = sorted(self._rows, key=lambda row: self._trial(row).number)
        self._forget(in_flight[count:])

    def drop_forgotten(self) -> None:
        """Empty the rows of images that are decided."""
        self.slots.release([row for row in self._rows if self._trial(row) not in self.early])

    def hold(self, found: Candidates) -> Candidates:
        """Keep the points of early trials; what is left are the points to be judged now."""
        rows = range(len(found.trials))
        early = [row for row in rows if found.trials[row].early]
        if not early:
            return found
        self.early.hold(found.part(early))
        return found.part([row for row in rows if not found.trials[row].early])

    def usable(self, live: list[int], seen: Seen) -> list[int]:
        """The rows in flight without early trials whose gradients are not finite: these run again in their turn."""
        rows = self._rows if seen.backwards else []
        if not rows:
            return live
        finite = seen.all_grads.index_select(0, self.slots.rows(rows)).flatten(1).sum(1).isfinite().tolist()
        self._forget([row for row, fine in zip(rows, finite, strict=True) if not fine])
        return self.slots.live

    @property
    def _rows(self) -> list[int]:
        return [row for row, trial in enumerate(self.slots.trials) if trial is not None and trial.early]

    def _trial(self, row: int) -> Trial:
        trial = self.slots.trials[row]
        assert trial is not None
        return trial

    def _forget(self, rows: list[int]) -> None:
        for row in rows:
            self.early.forget(self._trial(row))
        self.drop_forgotten()
