"""Images of one model under one attack: parts of them, each with evidence of its own, share the slots of the engine."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from robustkit.checks import zero_gradients
from robustkit.checks.facts import ProbeRecord
from robustkit.classifier.growth import growth_on
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.oracle import OracleCost, Plain
from robustkit.classifier.sanity_checks import checked_batch, checked_scores
from robustkit.classifier.session import Session
from robustkit.data.pictures import LazyData
from robustkit.data.read_ahead import read_ahead
from robustkit.engine.jobs import Job, Outcome, likeliest, loss_targets_of
from robustkit.engine.scheduler import run
from robustkit.evaluation.attacked_alone import AttackedAlone, answers_alike, attacked_alone
from robustkit.evaluation.image_marks import Numbers, parts_of
from robustkit.evaluation.ledger import Ledger
from robustkit.evaluation.plan import PICTURED, PlannedAttack
from robustkit.evaluation.records import attack_records, witness_records
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.run_log import RunLog
from robustkit.evidence.rows import NearnessRecord, Row

COMMIT_SECONDS = 0.5  # a finished image waits this long for its verdict, and then for its commit
READ_AT_ONCE = 64  # images read from the data set together


class Sessions(NamedTuple):
    """The sessions of one model's part of an evaluation."""

    model: Session
    surrogates: Mapping[str, Session]  # by name

    def surrogate(self, attack: PlannedAttack) -> Session | None:
        """Of the model that the attack queries in the place of the model, if it does."""
        return None if attack.column.surrogate is None else self.surrogates[attack.column.surrogate]


LeftOut = Callable[[PlannedAttack, Sequence[int], OracleCost], Collection[int]]


class AttackPart:
    """The images of a ledger under one attack: those that it passes over get their rows at once.

    Args:
        evaluation: the whole.
        ledger: of the model; it gets the rows.
        sessions: of the model.
        given: the input of the model.
        attack: which one.
        left_out: which of the images that a later member of an ensemble would attack it leaves out.
        log: of the run.

    Attributes:
        todo: the images that are neither finished nor already broken, in the order of work.
        left: how many of them have no outcome yet.
    """

    def __init__(
        self, evaluation: Evaluation, ledger: Ledger, sessions: Sessions, given: InputFormat, attack: PlannedAttack,
        left_out: LeftOut, log: RunLog,
    ) -> None:  # fmt: skip
        self.evaluation, self.ledger, self.sessions, self.given = evaluation, ledger, sessions, given
        self.attack, self.left_out, self.log = attack, left_out, log
        self._outcomes: list[Outcome] = []  # that are not on the disk yet
        ledger.carry_over(attack)
        self.todo = self._leave_out(sessions.model)
        self.left = len(self.todo)

    def add(self, outcome: Outcome) -> None:
        """Note the outcome of one of the images; it is committed later."""
        self._outcomes.append(outcome)
        self.left -= 1

    def write(self) -> None:
        """Commit the outcomes so far."""
        if self._outcomes:
            self.ledger.write(self._rows(self._outcomes))
            self._outcomes = []

    def jobs(self, only: Numbers | None = None) -> Iterator[Job]:
        """Some images, or all, read a few at a time; targeted attacks aim at near classes, if known."""
        attack, surrogate = self.attack, self.sessions.surrogate(self.attack)
        parts = parts_of(self.todo if only is None else only, READ_AT_ONCE)
        # On a GPU files are decoded while it works. On a CPU the decoder would take the time from the model.
        ahead = self.given.device.type == "cuda" and isinstance(self.evaluation.data, LazyData)
        read = read_ahead(self._read, parts) if ahead else ((part, self._read(part)) for part in parts)
        for part, (x, y) in read:
            images = self.given.moved(x)
            aimed = attack.attack.targets > 0 or surrogate is not None
            rankings = self._rankings(images, y, part, surrogate) if aimed else {}
            near = self.ledger.near(attack, part)
            for number, image, label in zip(part, images, y.tolist(), strict=True):
                aims = self._aims(near.get(number), rankings.get(number, []))
                yield Job(number, image, label, loss_targets_of(attack.attack, aims))

    def alone(self) -> AttackedAlone | None:
        """The outcome of one of the run's first images with nothing beside it, if the attack is the user's own."""
        if not self.attack.has_own_code:
            return None
        session, surrogate = self.sessions.model, self.sessions.surrogate(self.attack)
        image = self.todo[np.isin(self.todo, self.evaluation.ids[:PICTURED])][:1]
        if not len(image) or not answers_alike(session) or not (surrogate is None or answers_alike(surrogate)):
            return None
        return attacked_alone(self.attack.attack, next(self.jobs(image)), session, surrogate, self.evaluation.seed)

    def _leave_out(self, session: Session) -> Numbers:
        """Leave out those images that the attack passes over; returns the others that are to do."""
        todo = self.ledger.todo(self.attack)
        out = self.ledger.passed_over(
            self.attack, todo, noisy=not isinstance(session.oracle, Plain), replaced=session.replaces_gradients
        )
        todo = todo[~np.isin(todo, out)]
        further = np.fromiter(self.left_out(self.attack, todo.tolist(), session.oracle.cost), np.int64)
        self.ledger.leave_out(self.attack, np.concatenate([out, further]))
        return todo[~np.isin(todo, further)]

    def _aims(self, near: NearnessRecord | None, ranking: list[int]) -> list[int]:
        """The classes to aim at: those that were measured as near, and of the likeliest as many as make the least.

        The likeliest alone where nothing was measured, or the gradients mislead.
        """
        nearest = [] if near is None else self.ledger.store.near_classes(near)
        least = self.attack.stage.targets_at_least
        if near is None or (not nearest and (least == 0 or near.ratio == 0)):
            return ranking
        further = [each for each in ranking if each not in nearest]
        return nearest + further[: max(least - len(nearest), 0)]

    def _read(self, part: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and labels in the host's memory; pinned for a GPU, so that the copy to it waits for nothing."""
        x, y = checked_batch(self.evaluation.data, part)
        return x.pin_memory() if self.given.device.type == "cuda" else x, y

    def _rankings(
        self, images: Tensor, y: Tensor, part: Sequence[int], surrogate: Session | None
    ) -> dict[int, list[int]]:
        """The wrong classes of each image, likeliest first, as the queried model ranks them."""
        if surrogate is None:
            return self.ledger.store.rankings(self.ledger.model, part)
        scores = checked_scores(surrogate.judge(images), y, surrogate.name, part)
        return {number: likeliest(row, int(label)) for number, row, label in zip(part, scores, y, strict=True)}

    def _rows(self, outcomes: Sequence[Outcome]) -> Iterator[Row]:
        model, pictured = self.ledger.model, frozenset(self.evaluation.ids[:PICTURED])
        yield from attack_records(model, self.attack, outcomes, pictured)
        for outcome in outcomes:
            yield from _zero_gradients(model, self.attack, outcome)
            if outcome.success and self.evaluation.keep_adversarial:
                yield from witness_records(model, self.attack, outcome)


def attacked(
    first: AttackPart,
    further: Iterable[AttackPart | None] = (),
    finished: Callable[[AttackPart], None] = lambda part: None,
) -> Iterator[Outcome]:
    """Attack the images of all parts and yield their outcomes; rows are committed as they come, and when interrupted.

    Args:
        first: some images.
        further: images of the same model for the same attack, drawn from as slots become free; None where there are
            none at present. The attack ends when it has nothing to do, even if there may be more later.
        finished: is told of each part when its rows are committed.
    """
    batch, alone = _Batch(first, further, finished), first.alone()
    session, surrogate, evaluation = first.sessions.model, first.sessions.surrogate(first.attack), first.evaluation
    outcomes = run(
        session, first.attack.attack, batch.jobs(), slots=evaluation.slots or (surrogate or session).sizes.at_once,
        seed=evaluation.seed, surrogate=surrogate, tick=batch.tick,
        patience=0 if session.metered else COMMIT_SECONDS, measure=first.attack.stage.measures,
        growth=growth_on(first.given.device, (surrogate or session).sizes) if evaluation.fills_memory else None,
    )  # fmt: skip
    try:
        for outcome in outcomes:
            if alone is not None and outcome.sample == alone.outcome.sample and (text := alone.difference(outcome)):
                first.log.warn(text)
            batch.add(outcome)
            yield outcome
    finally:
        # Also when interrupted: what is finished is kept.
        batch.write()


class _Batch:
    """The parts that are under way."""

    def __init__(
        self, first: AttackPart, further: Iterable[AttackPart | None], finished: Callable[[AttackPart], None]
    ) -> None:
        self.first, self.further, self.finished = first, further, finished
        self._of: dict[int, AttackPart] = {}  # by image
        self._unwritten: dict[AttackPart, None] = {}  # in the order of their first outcomes
        self._written = self._ticked = time.monotonic()

    def jobs(self) -> Iterator[Job | None]:
        """The images of all parts; None where there are no more at present."""
        yield from self._begun(self.first)
        for part in self.further:
            if part is None:
                yield None
            else:
                yield from self._begun(part)

    def add(self, outcome: Outcome) -> None:
        """Note an outcome; a part that is finished is committed at once."""
        part = self._of.pop(outcome.sample)
        part.add(outcome)
        self._unwritten[part] = None
        if not part.left:
            self._end(part)

    def tick(self, live: int) -> None:
        """Write the outcomes if they would wait too long for the next tick."""
        now = time.monotonic()
        step, self._ticked = now - self._ticked, now
        if self._unwritten and now + step - self._written > COMMIT_SECONDS:
            self.write()

    def write(self) -> None:
        """Commit the outcomes."""
        for part in self._unwritten:
            part.write()
        self._unwritten, self._written = {}, time.monotonic()

    def _begun(self, part: AttackPart) -> Iterator[Job]:
        self._of.update(dict.fromkeys(part.todo.tolist(), part))
        if not part.left:
            self._end(part)
        yield from part.jobs()

    def _end(self, part: AttackPart) -> None:
        self._unwritten.pop(part, None)
        part.write()
        for text in part.attack.attack.faults:
            part.log.warn(text)
        self.finished(part)


def _zero_gradients(model: str, attack: PlannedAttack, outcome: Outcome) -> list[Row]:
    """A row for an image that stands and had no gradient in half of the steps or more, for the check of that name."""
    if not outcome.blind:
        return []
    place = attack.threat.norm, attack.threat.eps_text, zero_gradients.PROBE + attack.name
    return [ProbeRecord(model, *place, outcome.sample, 1, outcome.zero_backwards, 0, 0)]
