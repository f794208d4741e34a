"""The one loop: a fixed number of slots, a queue of trials, and a model that is queried.

Continuous batching, as language-model servers do it: a trial whose image is broken or whose budget is spent leaves its
slot at once and the next trial takes it. The trials of one image run one after the other (a success cancels the rest),
so the cost and the outcome of an image depend on nothing but the image, the attack and the seed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import torch

from robustkit.classifier.memory import no_memory
from robustkit.classifier.oracle import Plain
from robustkit.classifier.session import Session
from robustkit.engine.ahead import QueriesAhead, as_guessed
from robustkit.engine.jobs import Job, Outcome, Trial, by_attack
from robustkit.engine.nearness import Margins
from robustkit.engine.slots import Slots
from robustkit.engine.trial_queue import TrialQueue
from robustkit.engine.verdicts import Candidates, VerdictQueue, check_finite
from robustkit.primitives.image_masks import ImageMasks
from robustkit.primitives.mask import Mask
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Attack, Seen, State
from robustkit.primitives.queries import CHECKPOINTS
from robustkit.primitives.rows import Rows, along

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
    if isinstance(attack.mask, ImageMasks):
        for mask, own in _by_mask(attack.mask, [first, *jobs]):
            yield from run(
                session, replace(attack, mask=mask), own, slots=slots, seed=seed, tick=tick, surrogate=surrogate,
                judge=judge, patience=patience, measure=measure,
            )  # fmt: skip
        return
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


def _by_mask(masks: ImageMasks, jobs: Sequence[Job]) -> Iterator[tuple[Mask, list[Job]]]:
    """The jobs of each mask."""
    own = [masks.of_image(job.sample) for job in jobs]
    for mask in dict.fromkeys(own):
        yield mask, [job for job, other in zip(jobs, own, strict=True) if other == mask]


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
        guesses = attack.guesses and isinstance(queried.oracle, Plain) and not attack.bisects
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
        seen = self._seen(state if self.ahead is None else self.ahead.batch(state, live, self.most))
        if seen is None:
            self._halve()
        elif self.ahead is None:
            self._advance(live, seen)
        else:
            self._advance_along(self.ahead, live, seen)
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

    def _advance_along(self, ahead: QueriesAhead, live: list[int], seen: Seen) -> None:
        """Step after step, in the rows whose true query is still the guessed one."""
        rows, right = live, 0
        for guess, answer in ahead.answers(seen):
            state = self.slots.state
            assert state is not None
            same = as_guessed(state, guess).tolist()
            rows = [row for row in rows if same[row] and self.slots.trials[row] is not None]
            if not rows:
                break
            self._advance(rows, answer)
            right += len(rows)
        ahead.learn(right)

    def _advance(self, rows: list[int], seen: Seen) -> None:
        """One step of the attack in rows whose queries were answered; the others stay as they are."""
        before, live = self.slots.state, self.slots.live
        assert before is not None
        self._count(rows, seen)
        after = self._stepped(live, before, seen)
        if len(rows) < len(live):
            stepped = torch.zeros_like(before.done).index_fill(0, self.slots.rows(rows), True)
            after = after.where(stepped, before)
        self.slots.state = after
        self._release(rows, before, self._candidates(rows, before, seen))

    def _stepped(self, live: list[int], state: State, seen: Seen) -> State:
        """The attack's step; with bisection that of each trial's own radius."""
        if not self.attack.bisects:
            return self.attack.step(state, seen)
        idle = [row for row, trial in enumerate(self.slots.trials) if trial is None]
        parts, places = [state.take(self.slots.rows(idle))], idle
        for attack, numbers in by_attack([trial for trial in self.slots.trials if trial is not None]):
            rows = [live[number] for number in numbers]
            # Sums over a row take another path in a batch of one, so a lone row is stepped together with a copy.
            several = self.slots.rows(rows if len(rows) > 1 else rows * 2)
            stepped = attack.step(state.take(several), seen.take(several))
            parts.append(stepped.take(torch.arange(len(rows), device=several.device)))
            places = places + rows
        return Rows.cat(parts).take(self.slots.rows(places).argsort())

    def _count(self, live: list[int], seen: Seen) -> None:
        forwards = self.queried.oracle.cost.query
        backwards, without = forwards * seen.backwards, self._without_gradient(live, seen)
        for row in live:
            trial = self.slots.trials[row]
            assert trial is not None
            trial.queries += 1
            trial.forwards += forwards
            trial.backwards += backwards
            trial.zero_backwards += backwards if row in without else 0

    def _without_gradient(self, live: list[int], seen: Seen) -> set[int]:
        """Rows whose gradients are all exactly zero, once it is clear that none is NaN or infinite."""
        if not seen.backwards:
            return set()
        grad = seen.all_grads
        # Sums decide in nearly all cases: one pass over the values, which matters for small networks.
        sums = grad.flatten(1).sum(1).tolist()
        # A sign of NaN is zero, and would pass for "no gradient". A sum of finite values may overflow.
        if not all(map(math.isfinite, sums)):
            samples = [trial.job.sample for trial in self.slots.trials if trial is not None]
            check_finite(grad[self.slots.rows(live)], samples, "input gradient")
        return {row for row in live if sums[row] == 0 and not bool(grad[row].any())}

    def _candidates(self, live: list[int], state: State, seen: Seen) -> set[int]:
        """Rows whose query is a point of the ball that the search network gets wrong (or as targeted)."""
        if self.transfers:
            return set()  # that a surrogate is fooled says nothing, and the model itself was not queried
        if self.attack.unlimited and not self.attack.bisects:
            return set()  # the nearest error is looked for until the budget is spent
        if torch.equal(seen.label, state.trial.y):
            return set()
        # On the host: there are a few labels only, and on a small network each tensor operation shows.
        labels = seen.label.tolist()
        lost = [row for row in live if (trial := self.slots.trials[row]) is not None and trial.job.lost(labels[row])]
        if not lost:
            return set()
        candidates: set[int] = set()
        for attack, numbers in by_attack([trial for row in lost if (trial := self.slots.trials[row]) is not None]):
            rows = self.slots.rows([lost[number] for number in numbers])
            inside = attack.inside(state, seen, rows)
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
        for row in live:
            trial = self.slots.trials[row]
            assert trial is not None
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
