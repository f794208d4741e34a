"""The one loop: a fixed number of slots, a queue of trials, and a model that is asked.

Continuous batching, as language-model servers do it: a row whose image is broken or whose budget is spent leaves at
once and the next trial takes its slot. The trials of one image come one after the other (a success cancels the rest),
so what an image costs and what it ends as depend on nothing but the image, the attack and the seed.

Success is decided here and nowhere else: by a forward of the unmodified model at the point exactly projected.
"""

import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothing import ABSTAINS
from robustkit.errors import UserError
from robustkit.primitives import noise
from robustkit.primitives.protocol import Attack, FeatureAttack, Seen, State, Trials
from robustkit.primitives.rows import Rows, along, finite, padded

_AHEAD = 4  # trials begun before there is a slot for them: the slots by this
_JUDGED_TOGETHER = 64  # points per judging forward: they wait outside the slots, so waiting costs nothing


@dataclass(frozen=True)
class Job:
    """One image to attack, whatever the number of trials that takes."""

    sample: int  # number of the image; with seed, restart and loss target it fixes all noise
    x: Tensor  # [*S] in [0, 1], on the model's device
    y: int
    loss_targets: tuple[int, ...] = (-1,)  # classes aimed at, one trial each per restart; -1 for none
    target: int | None = None  # class that must be reached; None: any class but y

    def lost(self, label: int) -> bool:
        """Whether this answer is what the attack is after; none (-1) is not."""
        return label not in (self.y, ABSTAINS) if self.target is None else label == self.target


@dataclass(frozen=True)
class Outcome:
    """What became of one image."""

    sample: int
    success: bool
    x: Tensor  # [*S] the clean image, on the CPU
    x_adv: Tensor  # [*S] the judged point, inside ball and box: the witness, or the last point tried
    label: int  # what the unmodified model says there, -1 for nothing
    queries: int  # of the deciding trial
    restart: int
    loss_target: int  # -1 for none
    forwards: int  # over all trials of the image, judging included
    backwards: int


@dataclass
class _Flight:
    """The host's notes on a trial in flight."""

    job: Job
    trial: int = 0
    forwards: int = 0
    backwards: int = 0


@dataclass
class _Claims:
    """Points that left their slots together and wait for a verdict."""

    flights: list[_Flight]
    states: State  # [n] after the step, to go on with where a point is not adversarial after all
    points: Tensor  # [n, *S]
    final: list[bool]  # the point is the trial's last one, so a failure ends the trial


def run(
    classifier: Classifier,
    attack: Attack,
    jobs: Iterable[Job],
    *,
    slots: int,
    seed: int = 0,
    tick: Callable[[int], None] = lambda rows: None,
    surrogate: Classifier | None = None,
) -> Iterator[Outcome]:
    """Yield the outcome of every job, as they finish; inside `classifier.session()`.

    Args:
        classifier: the model.
        attack: what is tried.
        jobs: images; drawn from as slots become free, so they can be streamed.
        slots: rows in flight. Outcomes do not depend on it.
        seed: of all noise.
        tick: called with the number of trials in flight after each query.
        surrogate: the model that answers the queries, inside its own session; `classifier` then judges the last
            point of each trial and nothing else, as in a transfer attack.
    """
    lane = _Lane(classifier, surrogate or classifier, attack, iter(jobs), slots, seed)
    while lane.fill():
        tick(lane.ask())
        yield from lane.judge()
    yield from lane.judge()


@dataclass
class _Lane:
    classifier: Classifier
    asked: Classifier  # the same one, or a surrogate
    attack: Attack
    jobs: Iterator[Job]
    slots: int
    seed: int
    pool: State | None = None
    flights: list[_Flight | None] = field(default_factory=list)  # one per row of the pool, None where idle
    starting: deque[_Flight] = field(default_factory=deque)  # trials to begin
    begun: deque[_Flight] = field(default_factory=deque)  # trials with a first query and no slot yet,
    first: State | None = None  # which is in the last rows of this
    resuming: deque[tuple[_Flight, State]] = field(default_factory=deque)  # trials to go on with
    claims: list[_Claims] = field(default_factory=list)
    dry: bool = False  # no more jobs

    def fill(self) -> bool:
        """Give every free slot a trial if there is one; False when nothing is left to do but judging."""
        live = [row for row, flight in enumerate(self.flights) if flight is not None]
        if live and len(live) == len(self.flights) >= self.slots:
            return True
        free = self.slots - len(live)
        self._draw(free - self._waiting)
        arriving = min(free, self._waiting)
        if not live and not arriving:
            self.pool, self.flights = None, []
            return bool(self.claims)
        assert self.asked.shapes is not None
        self._resize(live, self.asked.shapes.fit(len(live) + arriving, self.slots, self.attack.sees))
        self._admit(arriving)
        return True

    def ask(self) -> int:
        """One query to all slots; trials that are decided or spent leave theirs."""
        if self.pool is None:
            return 0
        seen = self._seen(self.pool)
        if seen is None:
            self._halve()
            return 0
        live = [row for row, flight in enumerate(self.flights) if flight is not None]
        forwards = self.asked.answers
        backwards = forwards * (self.attack.sees == "gradients")
        for flight in self.flights:
            if flight is not None:
                flight.forwards += forwards
                flight.backwards += backwards
        # A sign of NaN is zero, and would pass for "no gradient".
        if not finite(seen.grad):
            samples = [flight.job.sample for flight in self.flights if flight is not None]
            _check_finite(seen.grad[torch.tensor(live, device=seen.grad.device)], samples, "input gradient")
        before, self.pool = self.pool, self.attack.step(self.pool, seen)
        self._release(live, before, self._claimed(live, before, seen.label))
        return len(live)

    def judge(self) -> Iterator[Outcome]:
        """Verdicts on waiting points, once enough wait or too little else is left to do."""
        if not self.claims:
            return
        waiting = sum(len(group.flights) for group in self.claims)
        live = sum(flight is not None for flight in self.flights)
        enough = max(1, min(_JUDGED_TOGETHER, live)) if self.dry else _JUDGED_TOGETHER
        while waiting >= enough:
            groups, self.claims = self.claims, []
            for group, points, labels in self._judged(groups):
                yield from self._verdicts(group, points, labels)
            waiting = sum(len(group.flights) for group in self.claims)

    def _seen(self, pool: State) -> Seen | None:
        """The model's answer, or None if it took more memory than there is."""
        try:
            return self.asked.ask(self.attack, pool)
        except torch.OutOfMemoryError:
            # The traceback holds on to what was computed; memory is freed only after this block.
            return None

    def _release(self, live: list[int], before: State, claimed: set[int]) -> None:
        """Decided and spent trials leave their slots and wait for a verdict."""
        assert self.pool is not None
        done = self.pool.done.tolist()
        gone = [row for row in live if row in claimed or done[row]]
        if not gone:
            return
        rows = torch.tensor(gone, device=before.query.device)
        hit = [row in claimed for row in gone]
        states = self.pool.take(rows)
        points = torch.where(
            along(torch.tensor(hit, device=rows.device), states.query), before.query.index_select(0, rows), states.query
        )
        flights = [flight for row in gone if (flight := self.flights[row]) is not None]
        self.claims.append(_Claims(flights, states, points, [not claim for claim in hit]))
        for row in gone:
            self.flights[row] = None

    def _judged(self, groups: list[_Claims]) -> Iterator[tuple[_Claims, Tensor, list[int]]]:
        points = torch.cat([group.points for group in groups])
        samples = [flight.job.sample for group in groups for flight in group.flights]
        _check_finite(points, samples, "input gradient")
        points = self.attack.ball.project_exact(torch.cat([group.states.trial.x for group in groups]), points)
        logits = self.classifier.judge(points)
        _check_finite(logits, samples, "output")
        labels = self.classifier.decided(logits, most_claims(self.attack)).tolist()
        for group in groups:
            count = len(group.flights)
            yield group, points[:count].cpu(), labels[:count]
            points, labels = points[count:], labels[count:]

    def _verdicts(self, group: _Claims, points: Tensor, labels: list[int]) -> Iterator[Outcome]:
        queries = group.states.queries.tolist()
        for row, (flight, label) in enumerate(zip(group.flights, labels, strict=True)):
            flight.forwards += self.classifier.verdicts
            job = flight.job
            success = job.lost(label)
            restart, loss_target = self._trial(flight)
            if not success and not group.final[row]:
                self._go_on(group, row)
            elif not success and flight.trial + 1 < self.attack.restarts * len(job.loss_targets):
                flight.trial += 1
                self.starting.append(flight)
            else:
                yield Outcome(
                    job.sample, success, job.x.cpu(), points[row], label, queries[row], restart, loss_target,
                    flight.forwards, flight.backwards,
                )  # fmt: skip

    def _go_on(self, group: _Claims, row: int) -> None:
        """The search network was wrong about a point: its trial goes on, or its own last point is judged."""
        flight, state = group.flights[row], group.states.take(torch.tensor([row], device=group.points.device))
        if bool(state.done):
            self.claims.append(_Claims([flight], state, state.query, [True]))
        else:
            self.resuming.append((flight, state))

    def _trial(self, flight: _Flight) -> tuple[int, int]:
        number, restart = divmod(flight.trial, self.attack.restarts)
        return restart, flight.job.loss_targets[number]

    def _claimed(self, live: list[int], state: State, label: Tensor) -> set[int]:
        """Rows whose query is a point of the ball that the search network gets wrong (or as aimed for)."""
        if self.asked is not self.classifier:
            return set()  # that a surrogate is fooled says nothing; queries to the model are none
        if torch.equal(label, state.trial.y):
            return set()
        # On the host: there are a few labels only, and on a small network each tensor operation shows.
        labels = label.tolist()
        lost = [row for row in live if (flight := self.flights[row]) is not None and flight.job.lost(labels[row])]
        if not lost:
            return set()
        rows = torch.tensor(lost, device=state.query.device)
        inside = self.attack.ball.contains(state.trial.x.index_select(0, rows), state.query.index_select(0, rows))
        return {row for row, within in zip(lost, inside.tolist(), strict=True) if within}

    @property
    def _waiting(self) -> int:
        """How many trials could take a slot."""
        return len(self.starting) + len(self.begun) + len(self.resuming)

    def _draw(self, count: int) -> None:
        """At least `count` more jobs, and some ahead: to begin a few trials takes as long as to begin one."""
        ahead = self.slots // _AHEAD
        for _ in range(count + ahead if count > 0 else 0):
            job = next(self.jobs, None)
            if job is None:
                self.dry = True
                return
            self.starting.append(_Flight(job))

    def _resize(self, live: list[int], size: int) -> None:
        """Keep the pool at `size` rows: idle rows repeat a live one, and nobody reads them."""
        if self.pool is None or not live:
            self.pool, self.flights = None, [None] * size
        elif len(self.flights) != size:
            self.pool = self.pool.take(padded(torch.tensor(live, device=self.pool.done.device), size))
            self.flights = [self.flights[row] for row in live] + [None] * (size - len(live))

    def _admit(self, count: int) -> None:
        free = [row for row, flight in enumerate(self.flights) if flight is None][:count]
        if not free:
            return
        resumed = [self.resuming.popleft() for _ in range(min(len(self.resuming), len(free)))]
        flights, states = [flight for flight, _ in resumed], [state for _, state in resumed]
        while len(flights) < len(free):
            some, state = self._next(len(free) - len(flights))
            flights += some
            states.append(state)
        fresh = Rows.cat(states)
        if len(fresh) == len(self.flights):
            self.pool = fresh
        elif self.pool is None:
            self.pool = fresh.take(padded(torch.arange(len(fresh), device=fresh.done.device), len(self.flights)))
        else:
            self.pool = self.pool.overwritten(torch.tensor(free, device=fresh.done.device), fresh)
        for row, flight in zip(free, flights, strict=True):
            self.flights[row] = flight

    def _next(self, most: int) -> tuple[list[_Flight], State]:
        """At most so many trials with their first queries."""
        if self.first is None:
            self.begun, self.starting = self.starting, deque()
            self.first = self._begin(list(self.begun))
        state, begin = self.first, len(self.first) - len(self.begun)
        count = min(most, len(self.begun))
        flights = [self.begun.popleft() for _ in range(count)]
        if not self.begun:
            self.first = None
        if count == len(state):
            return flights, state
        return flights, state.take(torch.arange(begin, begin + count, device=state.done.device))

    def _begin(self, flights: list[_Flight]) -> State:
        device = flights[0].job.x.device
        tries = [self._trial(flight) for flight in flights]
        restart = torch.tensor([restart for restart, _ in tries], device=device)
        loss_target = torch.tensor([loss_target for _, loss_target in tries], device=device)
        sample = torch.tensor([flight.job.sample for flight in flights], device=device)
        salt = zlib.crc32(type(self.attack).__name__.encode())
        key = noise.keys(self.seed * (1 << 32) + salt, sample, restart, loss_target)
        y = torch.tensor([flight.job.y for flight in flights], device=device)
        targets = [-1 if flight.job.target is None else flight.job.target for flight in flights]
        target = torch.tensor(targets, device=device)
        trials = Trials(torch.stack([flight.job.x for flight in flights]), y, loss_target, target, key)
        if isinstance(self.attack, FeatureAttack) and not self.attack.feature_shape:
            self.attack = self.asked.prepared(self.attack, trials.x)
        if len(flights) > 1:
            return self.attack.init(trials)
        # Sums over a row take another path in a batch of one, so a lone trial begins in company.
        alone = torch.zeros(1, dtype=torch.int64, device=device)
        return self.attack.init(trials.take(padded(alone, 2))).take(alone)

    def _halve(self) -> None:
        """After an out-of-memory: half the slots, the other half's trials go on later."""
        if self.slots < 2 or self.pool is None:
            raise UserError("The model does not fit into memory even for a single image; use another --device.")
        torch.cuda.empty_cache()
        self.slots //= 2
        for row, flight in enumerate(self.flights):
            if flight is not None:
                self.resuming.append((flight, self.pool.take(torch.tensor([row], device=self.pool.done.device))))
        self.pool, self.flights = None, []


def most_claims(attack: Attack) -> int:
    """How many points of one image an attack may have judged: one per query, and the last of each trial."""
    return attack.trials * attack.cost.forwards


def _check_finite(values: Tensor, samples: list[int], what: str) -> None:
    bad = (~values.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
    if bad:
        raise UserError(
            f"The model's {what} is not finite (NaN or infinite) for image {samples[bad[0]]}, "
            "so no attack can be trusted on it; mend the model first."
        )
