"""The one loop: a fixed number of slots, a queue of trials, and a model that is queried.

Continuous batching, as language-model servers do it: a trial whose image is broken or whose budget is spent leaves its
slot at once and the next trial takes it. The trials of one image run one after the other (a success cancels the rest),
so the cost and the outcome of an image depend on nothing but the image, the attack and the seed.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from robustkit.classifier.memory import no_memory
from robustkit.classifier.oracle import Plain
from robustkit.classifier.session import Session
from robustkit.engine.ahead import GuessedBatch, QueriesAhead
from robustkit.engine.jobs import Job, Outcome, Trial, by_attack
from robustkit.engine.nearness import Margins
from robustkit.engine.slots import Slots
from robustkit.engine.trial_queue import TrialQueue
from robustkit.engine.verdicts import Candidates, VerdictQueue, check_finite
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Attack, Seen, State, Trials
from robustkit.primitives.queries import CHECKPOINTS
from robustkit.primitives.rows import Rows, along
from robustkit.statistics.randomized_smoothing import ABSTAINS

_AHEAD = 4  # trials begun before there is a slot for them: the slots by this


def run(
    session: Session,
    attack: Attack,
    jobs: Iterable[Job],
    *,
    slots: int,
    seed: int = 0,
    tick: Callable[[int], None] = lambda rows: None,
    surrogate: Session | None = None,
    judge: Session | None = None,
    patience: float = math.inf,
    measure: bool = False,
) -> Iterator[Outcome]:
    """Yield the outcome of every job, as they finish.

    Args:
        session: of the model.
        attack: what is tried.
        jobs: images; drawn from as slots become free, so they can be streamed.
        slots: rows in flight. Outcomes do not depend on it.
        seed: of all noise.
        tick: called with the number of trials in flight after each query and the outcomes that it led to.
        surrogate: of the model that answers the queries in a transfer attack; `session`'s model then judges the last
            point of each trial and nothing else.
        judge: of the same model for points in the units of the jobs' originals; None where jobs have none.
        patience: seconds that a point waits for others to be judged with; outcomes do not depend on it.
        measure: how near images that are not broken are to the wrong classes (`robustkit.engine.nearness`). Only for an
            attack that keeps its best point, on a model that always answers alike; of others nothing is measured.
    """
    jobs = iter(jobs)
    first = next(jobs, None)
    if first is None:
        return
    attack.check_images(tuple(first.x.shape))
    attack = session.in_its_levels(attack)
    attack = (surrogate or session).prepared(attack, torch.stack([first.x, first.x]))
    plain = surrogate is None and isinstance(session.oracle, Plain)
    measurable = measure and plain and attack.keeps_best and not attack.ball.renders
    margins = Margins(attack.eps, attack.norm, mask=attack.mask) if measurable else None
    scheduler = Scheduler(
        session, surrogate or session, judge or session, attack, chain([first], jobs), slots, seed, patience, margins
    )
    while scheduler.admit():
        live = scheduler.step()
        yield from scheduler.verdicts()
        tick(live)
    yield from scheduler.verdicts()


class Scheduler:
    """Moves trials from the queue through the slots to their verdicts.

    Args:
        session: of the model.
        queried: of the model that answers the queries; the same one, or a surrogate.
        judge: of the model that judges; the same one, or one that takes points in the units of the jobs' originals.
        attack: what is tried.
        jobs: images.
        most: rows in flight.
        seed: of all noise.
        patience: seconds that a point waits for others to be judged with.
        margins: to measure nearness with.
    """

    def __init__(
        self, session: Session, queried: Session, judge: Session, attack: Attack, jobs: Iterator[Job], most: int,
        seed: int, patience: float = math.inf, margins: Margins | None = None,
    ) -> None:  # fmt: skip
        self.queried, self.attack, self.most = queried, attack, most
        self.transfers = queried is not session
        self.approaches = attack.unlimited and not attack.bisects and attack.sees != "gradients"
        self.queue = TrialQueue(attack, jobs, seed)
        self.slots = Slots()
        self.waiting = VerdictQueue(judge, attack, self.queue, patience, margins)
        # A model that draws noise may answer a query differently in another batch.
        guesses = attack.guesses and isinstance(queried.oracle, Plain) and not attack.unlimited
        self.ahead = QueriesAhead(attack, queried.sizes) if guesses else None

    def admit(self) -> bool:
        """Give every free slot a trial if there is one; False when nothing is left to do but judging."""
        slots, queue = self.slots, self.queue
        live = len(slots.live)
        if live and live == len(slots.trials) >= self.most:
            return True
        free = self.most - live
        if free > len(queue):
            queue.draw(free - len(queue) + self.most // _AHEAD)
        arriving = min(free, len(queue))
        if not live and not arriving:
            slots.clear()
            return bool(len(self.waiting))
        slots.resize(self.queried.sizes.fit(live + arriving, self.most, self.attack.sees))
        self._fill(arriving)
        return True

    def step(self) -> int:
        """One batch of queries and the attack's steps; returns how many trials were in flight."""
        state, live = self.slots.state, self.slots.live
        if state is None:
            return 0
        batch = None if self.ahead is None else self.ahead.batch(state, self.slots.rows(live), self.most)
        seen = self._seen(state if batch is None else batch.state)
        if seen is None:
            self._halve()
        elif self.ahead is None or batch is None:
            self._advance(live, seen)
        else:
            self._advance_along(self.ahead, batch, live, seen)
        return 0 if seen is None else len(live)

    def verdicts(self) -> Iterator[Outcome]:
        """Outcomes of the images that are decided."""
        return self.waiting.judge(len(self.slots.live))

    def _fill(self, count: int) -> None:
        trials: list[Trial] = []
        states: list[State] = []
        while len(trials) < count:
            some, state = self.queue.take(count - len(trials))
            trials += some
            states.append(state)
        if trials:
            self.slots.admit(trials, states)

    def _seen(self, state: State) -> Seen | None:
        """The model's answer, or None if it took more memory than there is."""
        try:
            return self.queried.query(self.attack, state)
        except torch.OutOfMemoryError:
            # The traceback holds on to what was computed; memory is freed only after this block.
            return None

    def _advance_along(self, ahead: QueriesAhead, batch: GuessedBatch, live: list[int], seen: Seen) -> None:
        """Step after step in each row, as long as its true query is the guessed one."""
        state, rows = self.slots.state, self.slots.rows(live)
        assert state is not None
        counted = ahead.counted(batch, seen, self._lost(batch.state.trial, seen.label))
        self._count(self.slots.of(live), counted.answers, seen)
        last = torch.tensor([answers[-1] for answers in counted.answers], device=rows.device)
        before = replace(state, query=state.query.index_copy(0, rows, batch.state.query.index_select(0, last)))
        label = state.trial.y.index_copy(0, rows, seen.label.index_select(0, last))
        self.slots.state = state.overwritten(rows, counted.after)
        self._release(live, before, self._candidates(live, before, label))

    def _advance(self, live: list[int], seen: Seen) -> None:
        """One step of the attack."""
        before = self.slots.state
        assert before is not None
        self._count(self.slots.of(live), [[row] for row in live], seen)
        self.slots.state = self._stepped(live, before, seen)
        self._release(live, before, self._candidates(live, before, seen.label))

    def _stepped(self, live: list[int], state: State, seen: Seen) -> State:
        """The attack's step; with bisection that of each trial's own radius."""
        if not self.attack.bisects:
            return self.attack.step(state, seen)
        idle = [row for row, trial in enumerate(self.slots.trials) if trial is None]
        parts, places = [state.take(self.slots.rows(idle))], idle
        for attack, numbers in by_attack(self.slots.of(live)):
            rows = [live[number] for number in numbers]
            # Sums over a row take another path in a batch of one, so a lone row is stepped together with a copy.
            several = self.slots.rows(rows if len(rows) > 1 else rows * 2)
            stepped = attack.step(state.take(several), seen.take(several))
            parts.append(stepped.take(torch.arange(len(rows), device=several.device)))
            places = places + rows
        return Rows.cat(parts).take(self.slots.rows(places).argsort())

    def _count(self, trials: list[Trial], answers: list[list[int]], seen: Seen) -> None:
        """Count the answers of each trial, which are some rows of `seen`."""
        forwards = self.queried.oracle.cost.query
        backwards, without = forwards * seen.backwards, self._without_gradient(trials, answers, seen)
        for trial, rows in zip(trials, answers, strict=True):
            trial.queries += len(rows)
            trial.forwards += forwards * len(rows)
            trial.backwards += backwards * len(rows)
            trial.zero_backwards += backwards * sum(row in without for row in rows)

    def _without_gradient(self, trials: list[Trial], answers: list[list[int]], seen: Seen) -> set[int]:
        """Answers whose gradients are all exactly zero, once it is clear that none is NaN or infinite."""
        if not seen.backwards:
            return set()
        grad = seen.all_grads
        # Sums decide in nearly all cases: one pass over the values, which matters for small networks.
        sums = grad.flatten(1).sum(1).tolist()
        # A sign of NaN is zero, and would pass for "no gradient". A sum of finite values may overflow.
        if not all(map(math.isfinite, sums)):
            samples = [trial.job.sample for trial, rows in zip(trials, answers, strict=True) for _ in rows]
            check_finite(grad[self.slots.rows(list(chain(*answers)))], samples, "input gradient")
        return {row for rows in answers for row in rows if sums[row] == 0 and not bool(grad[row].any())}

    def _lost(self, trials: Trials, label: Tensor) -> Tensor:
        """`[B]` bool, whether a predicted class is an error that ends a trial, if the query is in the ball."""
        if self.transfers:
            return torch.zeros_like(label, dtype=torch.bool)
        return torch.where(trials.target < 0, (label != trials.y) & (label != ABSTAINS), label == trials.target)

    def _candidates(self, live: list[int], state: State, label: Tensor) -> set[int]:
        """Rows whose query is a point of the ball that the search network gets wrong (or as targeted)."""
        if self.transfers:
            return set()  # that a surrogate is fooled says nothing, and the model itself was not queried
        if self.attack.unlimited and not self.attack.bisects:
            return set()  # the nearest error is looked for until the budget is spent
        if torch.equal(label, state.trial.y):
            return set()
        # On the host: there are a few labels only, and on a small network each tensor operation shows.
        labels = label.tolist()
        lost = [row for row, trial in zip(live, self.slots.of(live), strict=True) if trial.job.lost(labels[row])]
        if not lost:
            return set()
        candidates: set[int] = set()
        for attack, numbers in by_attack(self.slots.of(lost)):
            rows = self.slots.rows([lost[number] for number in numbers])
            inside = attack.ball.contains(state.trial.x.index_select(0, rows), state.query.index_select(0, rows))
            candidates |= {row for row, within in zip(rows.tolist(), inside.tolist(), strict=True) if within}
        return candidates

    def _release(self, live: list[int], before: State, candidates: set[int]) -> None:
        """Decided and spent trials leave their slots and wait for a verdict."""
        state = self.slots.state
        assert state is not None
        done = state.done.tolist()
        if self.approaches:
            self._note_distances(live, state, done)
        leaving = [row for row in live if row in candidates or done[row]]
        if not leaving:
            return
        rows = self.slots.rows(leaving)
        final = [row not in candidates for row in leaving]
        states = state.take(rows)
        last = along(torch.tensor(final, device=rows.device), states.query)
        points = torch.where(last, states.query, before.query.index_select(0, rows))
        self.waiting.add(Candidates(self.slots.release(leaving), states, points, final))

    def _note_distances(self, live: list[int], state: State, done: list[bool]) -> None:
        assert isinstance(state, NearestState)
        for row, trial in zip(live, self.slots.of(live), strict=True):
            if done[row] or trial.queries in CHECKPOINTS:
                trial.note(float(state.distance[row]))

    def _halve(self) -> None:
        """After an out-of-memory: half the slots; all trials in flight go on later."""
        state = self.slots.state
        if self.most < 2 or state is None:
            raise no_memory()
        torch.cuda.empty_cache()
        self.most //= 2
        live = self.slots.live
        for row, trial in zip(live, self.slots.release(live), strict=True):
            self.queue.pause(trial, state.take(self.slots.rows([row])))
        self.slots.clear()
