"""Points that left their slots together and wait for a verdict."""

from dataclasses import dataclass

from torch import Tensor

from robustkit.engine.jobs import Trial
from robustkit.primitives.protocol import State
from robustkit.primitives.rows import numbers_on


@dataclass(frozen=True)
class Candidates:
    """The points and the trials that they belong to."""

    trials: list[Trial]
    states: State  # [n] after the step, to go on with where a point is not adversarial after all
    points: Tensor  # [n, *S], or parameters [n, *P]
    final: list[bool]  # whether the point is the trial's last one, so that a failure ends the trial

    def part(self, rows: list[int]) -> "Candidates":
        """Some of the rows."""
        numbers = numbers_on(self.points.device, rows)
        trials, final = [self.trials[row] for row in rows], [self.final[row] for row in rows]
        return Candidates(trials, self.states.take(numbers), self.points.index_select(0, numbers), final)
