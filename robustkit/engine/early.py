"""Trials that begin before it is their turn, in rows of a batch that would stay idle.

The trials of one image run one after the other, and a success cancels the rest. Towards the end of an attack few images
are left, and a full batch takes little more time than one with few rows; so the next trials of these images run in the
idle rows. What they find waits until the trials before them have failed, and is forgotten if one succeeds: outcomes and
counts are those of one trial after the other.
"""

from dataclasses import dataclass

from robustkit.engine.candidates import Candidates
from robustkit.engine.jobs import Trial


@dataclass
class EarlyTrial:
    """A trial whose turn has not come."""

    trial: Trial
    found: Candidates | None = None  # its point, once it has left its slot


class EarlyTrials:
    """The early trials of all images: of each those that follow on the trial whose turn it is, without a gap."""

    def __init__(self) -> None:
        self._of_job: dict[int, list[EarlyTrial]] = {}  # by the job's identity; each list has one or more

    def __contains__(self, trial: Trial) -> bool:
        return any(each.trial is trial for each in self._of_job.get(id(trial.job), []))

    def begin(self, in_flight: list[Trial], most: int) -> list[Trial]:
        """At most `most` new early trials of the images in flight, one of each image in turn."""
        last = self._last(in_flight)
        new: list[Trial] = []
        while last and len(new) < most:
            last = {job: trial.following() for job, trial in last.items() if not trial.last}
            new += list(last.values())[: most - len(new)]
        for trial in new:
            trial.early = True
            self._of_job.setdefault(id(trial.job), []).append(EarlyTrial(trial))
        return new

    def left(self, in_flight: list[Trial]) -> int:
        """How many trials of the images in flight have not begun."""
        return sum(trial.left for trial in self._last(in_flight).values())

    def hold(self, found: Candidates) -> None:
        """Keep the points of early trials that have left their slots."""
        for row, trial in enumerate(found.trials):
            for each in self._of_job.get(id(trial.job), []):
                if each.trial is trial:
                    each.found = found.part([row])

    def in_turn(self, failed: Trial) -> EarlyTrial | None:
        """The early trial that follows on a failed one: it goes on from its counts, and is early no more."""
        begun = self._of_job.get(id(failed.job))
        if begun is None:
            return None
        following = begun.pop(0)
        following.trial.count_in(failed)
        following.trial.early = False
        if not begun:
            del self._of_job[id(failed.job)]
        return following

    def forget(self, trial: Trial) -> None:
        """Forget the early trials of its image, from this one on if it is early itself."""
        begun = self._of_job.pop(id(trial.job), None)
        if begun is None:
            return
        kept = [each for each in begun if trial.early and each.trial.number < trial.number]
        if kept:
            self._of_job[id(trial.job)] = kept

    def _last(self, in_flight: list[Trial]) -> dict[int, Trial]:
        """The last trial that has begun of each image in flight, by the job's identity."""
        last = {id(trial.job): trial for trial in in_flight if not trial.early}
        return last | {job: begun[-1].trial for job, begun in self._of_job.items() if job in last}
