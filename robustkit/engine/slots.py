"""The trials in flight: one state on the device, whose rows are the slots."""

from collections.abc import Sequence

import torch
from torch import Tensor

from robustkit.engine.jobs import Trial
from robustkit.primitives.protocol import State
from robustkit.primitives.rows import Rows, padded


class Slots:
    """A state of fixed length and the trial in each row; an idle row repeats a live one, and nobody reads it."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.trials: list[Trial | None] = []  # one per row, None where idle

    @property
    def live(self) -> list[int]:
        """Rows with a trial."""
        return [row for row, trial in enumerate(self.trials) if trial is not None]

    def clear(self) -> None:
        """Drop all rows."""
        self.state, self.trials = None, []

    def resize(self, size: int) -> None:
        """Keep `size` rows, the live ones first if the size changes."""
        live = self.live
        if self.state is None or not live:
            self.state, self.trials = None, [None] * size
        elif len(self.trials) != size:
            self.state = self.state.take(padded(self.rows(live), size))
            self.trials = [self.trials[row] for row in live] + [None] * (size - len(live))

    def admit(self, trials: Sequence[Trial], states: Sequence[State]) -> None:
        """Put trials into idle rows; `states` are their states, in the same order."""
        idle = [row for row, trial in enumerate(self.trials) if trial is None][: len(trials)]
        fresh = Rows.cat(states)
        if len(fresh) == len(self.trials):
            self.state = fresh
        elif self.state is None:
            self.state = fresh.take(padded(torch.arange(len(fresh), device=fresh.done.device), len(self.trials)))
        else:
            self.state = self.state.overwritten(self.rows(idle), fresh)
        for row, trial in zip(idle, trials, strict=True):
            self.trials[row] = trial

    def of(self, rows: Sequence[int]) -> list[Trial]:
        """The trials of some rows, none of which is idle."""
        return [trial for row in rows if (trial := self.trials[row]) is not None]

    def release(self, rows: Sequence[int]) -> list[Trial]:
        """The trials of some rows, which become idle."""
        trials = self.of(rows)
        for row in rows:
            self.trials[row] = None
        return trials

    def rows(self, numbers: Sequence[int]) -> Tensor:
        """Row numbers as a tensor beside the state."""
        assert self.state is not None, "there are no rows"
        return torch.tensor(numbers, dtype=torch.int64, device=self.state.done.device)
