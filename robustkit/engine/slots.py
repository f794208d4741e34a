"""The trials in flight: one state on the device, whose rows are the slots."""

import math
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from robustkit.engine.jobs import Trial, by_attack, lost_rows
from robustkit.engine.own_attacks import check_queries
from robustkit.engine.verdicts import check_gradients
from robustkit.primitives.protocol import Attack, Seen, State
from robustkit.primitives.rows import Rows, numbers_on, padded


class Slots:
    """A state of fixed length and the trial in each row; an idle row repeats a live one, and nobody reads it."""

    def __init__(self) -> None:
        self.state: State | None = None
        self.trials: list[Trial | None] = []  # one per row, None where idle

    @property
    def live(self) -> list[int]:
        """Rows with a trial."""
        return [row for row, trial in enumerate(self.trials) if trial is not None]

    @property
    def in_turn(self) -> list[int]:
        """Rows with a trial whose turn it is (`robustkit.engine.early`)."""
        return [row for row, trial in enumerate(self.trials) if trial is not None and not trial.early]

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
        return numbers_on(self.state.done.device, numbers)

    def without_gradient(
        self, attack: Attack, live: Sequence[int], answers: Sequence[Sequence[int]], queried: State, seen: Seen
    ) -> set[int]:
        """Answers whose gradients are all exactly zero.

        Args:
            attack: which queried.
            live: slots of the trials that were answered.
            answers: of each of them, rows of `seen`.
            queried: the state with the queries.
            seen: the answers.

        Raises:
            UserError: a gradient is NaN or infinite; the attack is named where its query is.
        """
        if not seen.backwards:
            return set()
        grad = seen.all_grads
        # Sums decide in nearly all cases: one pass over the values, which matters for small networks.
        sums = grad.flatten(1).sum(1).tolist()
        # A sign of NaN is zero, and would pass for "no gradient". A sum of finite values may overflow.
        if not all(map(math.isfinite, sums)):
            samples = [trial.job.sample for trial, each in zip(self.of(live), answers, strict=True) for _ in each]
            rows = self.rows(list(chain(*answers)))
            check_queries(attack, queried.query[rows], queried.queries[rows].tolist(), samples)
            check_gradients(attack, grad[rows], samples)
        return {row for row in chain.from_iterable(answers) if sums[row] == 0 and not bool(grad[row].any())}

    def candidates(self, rows: Sequence[int], queried: State, seen: Seen) -> set[int]:
        """Those of the rows whose query is a point of the ball that the search network gets wrong (or as targeted).

        Args:
            rows: to look at.
            queried: the state with the queries.
            seen: what the network answered there.
        """
        if torch.equal(seen.label, queried.trial.y):
            return set()
        all_lost: list[bool] = lost_rows(queried.trial, seen.label).tolist()
        lost = [row for row in rows if all_lost[row]]
        found: set[int] = set()
        for attack, numbers in by_attack(self.of(lost)):
            those = [lost[number] for number in numbers]
            inside = attack.inside(queried, seen, self.rows(those)).tolist()
            found |= {row for row, within in zip(those, inside, strict=True) if within}
        return found
