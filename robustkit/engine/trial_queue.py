"""Trials that wait for a slot: new ones, begun ones, and ones to go on with."""

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import torch

from robustkit.engine.bisection import Bisection
from robustkit.engine.jobs import Job, Trial, by_attack
from robustkit.engine.own_attacks import begun, require_queries
from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack, MaskedTrials, State, Trials
from robustkit.primitives.rows import Rows, numbers_on, padded


class TrialQueue:
    """Draws jobs and begins their trials, several at once: to begin a few takes as long as to begin one.

    Args:
        attack: whose trials they are.
        jobs: drawn from as slots become free, so they can be streamed; None where there are no more at present.
        seed: of all noise.
    """

    def __init__(self, attack: Attack, jobs: Iterator[Job | None], seed: int) -> None:
        self.attack, self.seed = attack, seed
        self.exhausted = False  # no more jobs, at least at present
        self._jobs = jobs
        self._new: deque[Trial] = deque()
        self._begun: deque[Trial] = deque()  # trials with a first query,
        self._first: State | None = None  # which is in the last rows of this
        self._paused: deque[tuple[Trial, State]] = deque()
        self._attacks: dict[float, Attack] = {}  # by radius

    def __len__(self) -> int:
        return len(self._new) + len(self._begun) + len(self._paused)

    def draw(self, count: int) -> None:
        """Draw at most `count` more jobs."""
        for _ in range(count):
            job = next(self._jobs, None)
            self.exhausted = job is None
            if job is None:
                return
            trial = Trial(job, self.attack)
            if self.attack.bisects:
                self.bisect(trial, Bisection.of(self.attack, job.x.numel()))
            else:
                self._new.append(trial)

    def bisect(self, trial: Trial, bisection: Bisection) -> None:
        """Queue the first trial of an image at the next radius."""
        trial.bisection, trial.number, radius = bisection, 0, bisection.radius
        if radius not in self._attacks:
            self._attacks[radius] = replace(self.attack, eps=radius)
        trial.attack = self._attacks[radius]
        self._new.append(trial)

    def retry(self, trial: Trial) -> None:
        """Queue the next trial of an image."""
        trial.number += 1
        self._new.append(trial)

    def pause(self, trial: Trial, state: State) -> None:
        """Queue a trial that goes on from `state`, one row."""
        self._paused.append((trial, state))

    def take(self, most: int) -> tuple[list[Trial], State]:
        """At most `most` trials, with their states in the same order; there must be one."""
        if self._paused:
            trial, state = self._paused.popleft()
            return [trial], state
        if self._first is None:
            groups = list(by_attack(list(self._new)))
            self._begun = deque(self._new[row] for _, rows in groups for row in rows)
            self._first = Rows.cat([self.begun(attack, [self._new[row] for row in rows]) for attack, rows in groups])
            self._new = deque()
        state, start = self._first, len(self._first) - len(self._begun)
        count = min(most, len(self._begun))
        trials = [self._begun.popleft() for _ in range(count)]
        if not self._begun:
            self._first = None
        if count == len(state):
            return trials, state
        return trials, state.take(torch.arange(start, start + count, device=state.done.device))

    def begun(self, attack: Attack, trials: list[Trial]) -> State:
        """The first states of trials of one attack, in their order."""
        device = trials[0].job.x.device

        def column(values: list[int]) -> torch.Tensor:
            return numbers_on(device, values)

        restart = column([trial.restart for trial in trials])
        loss_target = column([trial.loss_target for trial in trials])
        sample = column([trial.job.sample for trial in trials])
        salt = zlib.crc32(type(attack).__name__.encode())
        key = noise.keys(self.seed * (1 << 32) + salt, sample, restart, loss_target)
        y = column([trial.job.y for trial in trials])
        target = column([-1 if trial.job.target is None else trial.job.target for trial in trials])
        x, mask = torch.stack([trial.job.x for trial in trials]), self.attack.mask
        if mask is None:
            rows = Trials(x, y, loss_target, target, key, restart)
        else:
            rows = MaskedTrials(mask.inside(x), y, loss_target, target, key, restart, x)
        # Sums over a row take another path in a batch of one, so a lone trial begins together with a copy of itself.
        alone = torch.zeros(1, dtype=torch.int64, device=device)
        state = begun(attack, rows if len(trials) > 1 else rows.take(padded(alone, 2)))
        require_queries(attack, state)
        return state if len(trials) > 1 else state.take(alone)
