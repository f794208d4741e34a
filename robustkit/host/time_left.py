"""How long a job of several stages still takes, from the work of this session alone."""

import time
from collections.abc import Callable, Mapping


class TimeLeft:
    """The share of a job that is done, and the seconds that the rest will take at the speed of this session.

    Work that an earlier session did counts as done, and not as fast.

    Args:
        stages: the expected work of each stage, in the order in which they come; in any unit.
        clock: seconds.
    """

    def __init__(self, stages: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self._stages, self._clock = dict(stages), clock
        self._start = clock()
        self._before = 0.0  # work of the stages before the current one, by whomever
        self._weight = self._share = self._here = 0.0  # of the current stage: its work, its done share, ours
        self._ours = 0.0  # work of this session in earlier stages

    def begin(self, stage: str, total: int, done: int) -> None:
        """A stage begins, `done` of its `total` images finished before; stages that were left out are finished."""
        self._ours += self._weight * self._here
        names = list(self._stages)
        place = names.index(stage) if stage in self._stages else len(names)
        self._before = sum(self._stages[name] for name in names[:place])
        self._weight = self._stages.get(stage, 0.0)
        self._share, self._here = (done / total if total else 1.0), 0.0

    def advance(self, share: float) -> None:
        """A share of the current stage is finished in addition."""
        self._share, self._here = self._share + share, self._here + share

    @property
    def done(self) -> float:
        """The share of the job that is done, from 0 to 1."""
        whole = sum(self._stages.values())
        return min(1.0, (self._before + self._weight * self._share) / whole) if whole else 1.0

    @property
    def seconds(self) -> float | None:
        """The time that is left; None before anything was done in this session."""
        ours = self._ours + self._weight * self._here
        if ours <= 0:
            return None
        return (self._clock() - self._start) * (1 - self.done) * sum(self._stages.values()) / ours


def clock_text(seconds: float | None) -> str:
    """Seconds as "0:05:07"; dashes for None."""
    if seconds is None:
        return "-:--:--"
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
