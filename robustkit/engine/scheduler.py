"""The one loop: a fixed number of slots, a queue of trials, and a model that is queried.

Continuous batching, as language-model servers do it: a trial whose image is broken or whose budget is spent leaves its
slot at once and the next trial takes it. The trials of one image run one after the other (a success cancels the rest),
so the cost and the outcome of an image depend on nothing but the image, the attack and the seed.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import torch

from robustkit.classifier.growth import Growth
from robustkit.classifier.oracle import Plain
from robustkit.classifier.read_gradients import gradients_read
from robustkit.classifier.session import Session
from robustkit.engine.ahead import GuessedBatch, QueriesAhead
from robustkit.engine.candidates import Candidates
from robustkit.engine.early import EarlyTrials
from robustkit.engine.early_rows import EarlyRows
from robustkit.engine.jobs import Job, Outcome, Trial, by_attack, by_mask, lost_rows, most_queries
from robustkit.engine.margins import Margins
from robustkit.engine.own_attacks import endless, stepped
from robustkit.engine.pool import run_pooled
from robustkit.engine.pooled_query import BatchOfQueries, can_pool
from robustkit.engine.slots import Slots
from robustkit.engine.trial_queue import TrialQueue
from robustkit.engine.verdicts import VerdictQueue
from robustkit.primitives.image_masks import ImageMasks
from robustkit.primitives.measure import Measure
from robustkit.primitives.nearest import NearestState
from robustkit.primitives.protocol import Attack, Seen, State
from robustkit.primitives.queries import CHECKPOINTS
from robustkit.primitives.rows import Rows, along, numbers_on

_AHEAD = 4  # trials begun before there is a slot for them: the slots by this


def run(
    session: Session,
    attack: Attack,
    jobs: Iterable[Job | None],
    *,
    slots: int,
    seed: int = 0,
    tick: Callable[[int], None] = lambda rows: None,
    surrogate: Session | None = None,
    judge: Session | None = None,
    patience: float = math.inf,
    measure: Measure | None = None,
    growth: Growth | None = None,
) -> Iterator[Outcome]:
    """Yield the outcome of every job, as they finish.

    Args:
        session: of the model.
        attack: what is tried.
        jobs: images; drawn from as slots become free, so they can be streamed. None where there are no more at present;
            the attack ends when it has nothing to do, even if there may be more later.
        slots: rows in flight. Outcomes do not depend on it.
        seed: of all noise.
        tick: called with the number of trials in flight after each query and the outcomes that it led to.
        surrogate: of the model that answers the queries in a transfer attack; `session`'s model then judges the last
            point of each trial and nothing else.
        judge: of the same model for points in the units of the jobs' originals; None where jobs have none.
        patience: seconds that a point waits for others to be judged with; outcomes do not depend on it.
        measure: what is measured of images that are not broken (`robustkit.engine.nearness`). Only for an attack that
            keeps its best point, on a model that always answers alike; of others nothing is measured.
        growth: of the rows in flight from `slots` on, as far as memory allows; None for none. Not under masks that
            images have of their own.
    """
    jobs = iter(jobs)
    first = next(jobs, None)
    if first is None:
        return
    attack.check_images(tuple(first.x.shape))
    attack = session.in_its_levels(attack)
    attack = (surrogate or session).prepared(attack, torch.stack([first.x, first.x]))
    plain = surrogate is None and isinstance(session.oracle, Plain)
    measurable = plain and attack.keeps_best and not attack.ball.renders

    def scheduler(attack: Attack, jobs: Iterator[Job | None], pooled: bool) -> Scheduler:
        margins = None
        if measure is not None and measurable:
            margins = Margins(attack.eps, attack.norm, mask=attack.mask, measure=measure)
        return Scheduler(
            session, surrogate or session, judge or session, attack, jobs, slots, seed, patience, margins, pooled,
            None if pooled else growth,
        )  # fmt: skip

    jobs = chain([first], jobs)
    groups: Iterable[tuple[Attack, Iterator[Job | None]]] = [(attack, jobs)]
    if isinstance(attack.mask, ImageMasks):
        own = by_mask(list(iter(lambda: next(jobs, None), None)), attack.mask.of_image)  # those of the present
        groups = ((replace(attack, mask=mask), iter(some)) for mask, some in own)
    pooled = isinstance(attack.mask, ImageMasks) and can_pool(surrogate or session, attack)
    schedulers = (scheduler(*group, pooled) for group in groups)
    if pooled:
        yield from run_pooled(schedulers, slots, tick)
        return
    for each in schedulers:
        while each.admit():
            live = each.step()
            yield from each.verdicts()
            tick(live)
        yield from each.verdicts()


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
        pooled: whether others ask in the same batch (`robustkit.engine.pool`), so that it need not be filled here.
        growth: of the rows in flight.
    """

    def __init__(
        self, session: Session, queried: Session, judge: Session, attack: Attack, jobs: Iterator[Job | None], most: int,
        seed: int, patience: float = math.inf, margins: Margins | None = None, pooled: bool = False,
        growth: Growth | None = None,
    ) -> None:  # fmt: skip
        self.queried, self.attack, self.pooled, self.growth = queried, attack, pooled, growth
        most = most if growth is None else growth.first(most, attack.sees)
        self.most = min(most, queried.sizes.fit_into_memory.get(attack.sees, most))
        # That a surrogate is fooled says nothing; and without a radius the nearest error is looked for until the budget
        # is spent.
        self.judges_queries = queried is session and (attack.bisects or not attack.unlimited)
        self.most_queries = most_queries(attack)
        self.approaches = attack.unlimited and not attack.bisects and attack.sees != "gradients"
        self.queue = TrialQueue(attack, jobs, seed)
        self.slots = Slots()
        early = EarlyTrials()
        self.early_rows = EarlyRows(early, self.slots, attack)
        self.waiting = VerdictQueue(judge, attack, self.queue, early, patience, margins)
        # A model that draws noise may answer a query differently in another batch.
        repeats = isinstance(queried.oracle, Plain)
        guesses = attack.guesses and repeats and not attack.unlimited
        self.ahead = QueriesAhead(attack, queried.sizes) if guesses else None
        one_by_one = guesses or attack.bisects or self.approaches or not attack.reads_all_gradients
        # Rows cost little but where each query is paid for.
        paid = queried.sizes.compact or queried is not session or queried.answers_only or pooled
        self.begins_early = repeats and attack.trials > 1 and not (paid or one_by_one or attack.unlimited)

    def admit(self) -> bool:
        """Give every free slot a trial if there is one; False when nothing is left to do but judging."""
        slots, queue = self.slots, self.queue
        if self.begins_early:
            self.early_rows.drop_forgotten()
        live = len(self.slots.in_turn)
        if live and live == len(slots.trials) >= self.most:
            return True
        free = self.most - live
        if free > len(queue):
            queue.draw(free - len(queue) + self.most // _AHEAD)
        arriving = min(free, len(queue))
        if not live and not arriving:
            self.early_rows.leave(0)
            slots.clear()
            return bool(len(self.waiting))
        none_left = queue.exhausted and len(queue) == arriving
        early = self.early_rows.possible if self.begins_early and none_left else 0
        size = self._size(min(self.most, live + arriving + early))
        if self.begins_early:
            self.early_rows.leave(size - live - arriving)
        slots.resize(size)
        self._fill(arriving)
        if early:
            self.early_rows.fill(queue.begun)
        return True

    @property
    def over(self) -> bool:
        """Whether nothing is left to do: no job, no trial, no point to be judged."""
        nothing_queued = self.queue.exhausted and not len(self.queue)
        return nothing_queued and not self.slots.live and not len(self.waiting)

    def step(self) -> int:
        """One batch of queries and the attack's steps; returns how many trials were in flight."""
        query = self.asked()
        if query is None:
            return 0
        live = len(self.slots.in_turn)
        seen: Seen | None = None
        with suppress(torch.OutOfMemoryError):  # what was computed is freed only after the block
            seen = self.queried.query(self.attack, query.state)
        if seen is None:
            self.pause_all()
            self.most = self.queried.sizes.halved(self.most, self.attack.sees)
            return 0
        self.answer(query, seen)
        if self.growth is not None and live == self.most and len(self.queue):
            self.most = self.growth.after(live, self.attack.sees)
        return live

    def asked(self) -> BatchOfQueries | None:
        """The next queries; None without a trial in flight."""
        state, live = self.slots.state, self.slots.live
        if state is None or (self.pooled and not live):
            return None
        batch = None if self.ahead is None else self.ahead.batch(state, self.slots.rows(live), self.most)
        if batch is None:
            return BatchOfQueries(state, live, None)
        return BatchOfQueries(batch.state, list(range(batch.live * batch.depth)), batch)

    def answer(self, query: BatchOfQueries, seen: Seen) -> None:
        """The attack's steps after the model's answer to the queries that `asked` returned last."""
        live = self.slots.live
        if self.ahead is None or query.guessed is None:
            self._advance(live, seen)
        else:
            self._advance_along(self.ahead, query.guessed, live, seen)

    def verdicts(self) -> Iterator[Outcome]:
        """Outcomes of the images that are decided."""
        return self.waiting.judge(len(self.slots.in_turn))

    def _size(self, rows: int) -> int:
        """How many slots there are for so many trials."""
        if self.pooled:
            return max(2, rows)  # sums over a row take another path in a batch of one
        return self.queried.sizes.fit(rows, self.most, self.attack.sees)

    def _fill(self, count: int) -> None:
        trials: list[Trial] = []
        states: list[State] = []
        while len(trials) < count:
            some, state = self.queue.take(count - len(trials))
            trials += some
            states.append(state)
        if trials:
            self.slots.admit(trials, states)

    def _advance_along(self, ahead: QueriesAhead, batch: GuessedBatch, live: list[int], seen: Seen) -> None:
        """Step after step in each row, as long as its true query is the guessed one."""
        state, rows = self.slots.state, self.slots.rows(live)
        assert state is not None
        ends = lost_rows(batch.state.trial, seen.label)
        counted = ahead.counted(batch, seen, ends if self.judges_queries else torch.zeros_like(ends))
        self._count(live, counted.answers, batch.state, seen)
        # The last answer of each trial, in its slot.
        last = numbers_on(rows.device, [answers[-1] for answers in counted.answers])
        before = replace(state, query=state.query.index_copy(0, rows, batch.state.query.index_select(0, last)))
        label = state.trial.y.index_copy(0, rows, seen.label.index_select(0, last))
        answered = replace(seen.take(torch.zeros_like(state.trial.y).index_copy(0, rows, last)), label=label)
        self.slots.state = state.overwritten(rows, counted.after)
        self._release(live, before, answered, self.slots.state)

    def _advance(self, live: list[int], seen: Seen) -> None:
        """One step of the attack."""
        before = self.slots.state
        assert before is not None
        live = self.early_rows.usable(live, seen) if self.begins_early else live
        self._count(live, list(zip(live)), before, seen)
        self.slots.state = self._stepped(live, before, seen)
        self._release(live, before, seen, self.slots.state)

    def _stepped(self, live: list[int], state: State, seen: Seen) -> State:
        """The attack's step; with bisection that of each trial's own radius."""
        if not self.attack.bisects:
            return stepped(self.attack, state, seen)
        idle = [row for row, trial in enumerate(self.slots.trials) if trial is None]
        parts, places = [state.take(self.slots.rows(idle))], idle
        for attack, numbers in by_attack(self.slots.of(live)):
            rows = [live[number] for number in numbers]
            # Sums over a row take another path in a batch of one, so a lone row is stepped together with a copy.
            several = self.slots.rows(rows if len(rows) > 1 else rows * 2)
            after = stepped(attack, state.take(several), seen.take(several))
            parts.append(after.take(torch.arange(len(rows), device=several.device)))
            places = places + rows
        return Rows.cat(parts).take(self.slots.rows(places).argsort())

    def _count(self, live: list[int], answers: Sequence[Sequence[int]], queried: State, seen: Seen) -> None:
        """Count the answers of each trial in flight, which are some rows of `seen`, to the queries of `queried`."""
        backwards = [seen.backwards] * len(seen)
        if not self.attack.reads_all_gradients:
            backwards = gradients_read(self.attack, queried).clamp(max=seen.backwards).tolist()
        without_gradient = self.slots.without_gradient(self.attack, live, answers, queried, seen)
        forwards = self.queried.oracle.cost.query
        for trial, rows in zip(self.slots.of(live), answers, strict=True):
            count = len(rows)
            trial.queries += count
            if trial.queries > self.most_queries * len(trial.job.loss_targets):
                raise endless(self.attack, trial.queries)
            trial.forwards += forwards * count
            read = backwards[rows[0]] if count == 1 else sum(backwards[row] for row in rows)
            trial.backwards += forwards * read
            if without_gradient:
                trial.zero_backwards += forwards * sum(backwards[row] for row in rows if row in without_gradient)

    def _release(self, live: list[int], before: State, seen: Seen, after: State) -> None:
        """Decided and spent trials leave their slots and wait for a verdict."""
        done = {row for row, over in enumerate(after.done.tolist()) if over}
        candidates = self.slots.candidates(live, before, seen) if self.judges_queries else set()
        if self.approaches:
            self._note_distances(live, after, done)
        leaving = [row for row in live if row in candidates or row in done]
        if not leaving:
            return
        numbers = self.slots.rows(leaving)
        final = [row not in candidates for row in leaving]
        states = after.take(numbers)
        last = along(numbers_on(numbers.device, final).bool(), states.query)
        points = torch.where(last, states.query, before.query.index_select(0, numbers))
        found = self.early_rows.hold(Candidates(self.slots.release(leaving), states, points, final))
        if found.trials:
            self.waiting.add(found)

    def _note_distances(self, rows: list[int], state: State, done: set[int]) -> None:
        assert isinstance(state, NearestState)
        for row, trial in zip(rows, self.slots.of(rows), strict=True):
            if row in done or trial.queries in CHECKPOINTS:
                trial.note(float(state.distance[row]))

    def pause_all(self) -> None:
        """Queue all trials in flight, which go on from their states."""
        self.early_rows.leave(0)
        state, live = self.slots.state, self.slots.live
        if state is not None:
            for row, trial in zip(live, self.slots.release(live), strict=True):
                self.queue.pause(trial, state.take(self.slots.rows([row])))
        self.slots.clear()
