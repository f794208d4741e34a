"""One model's part of an evaluation: clean images first, then every attack of the plan, rows committed as they come."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from torch import Tensor

from robustkit.checks import clean_accuracy, zero_gradients
from robustkit.checks.facts import ProbeRecord
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.oracle import OracleCost, Plain
from robustkit.classifier.randomized import Randomized
from robustkit.classifier.sanity_checks import changed_since_start, checked_images, checked_model, checked_scores
from robustkit.classifier.session import Session
from robustkit.classifier.smoothed import Smoothed
from robustkit.data.eight_bits import EightBitImages
from robustkit.data.pictures import LazyData
from robustkit.data.read_ahead import read_ahead
from robustkit.engine.jobs import Job, Outcome, likeliest, loss_targets_of
from robustkit.engine.scheduler import run
from robustkit.evaluation.corrupted import CorruptedImages
from robustkit.evaluation.ensemble_fit import misfits
from robustkit.evaluation.image_marks import Numbers, parts_of
from robustkit.evaluation.ledger import Ledger
from robustkit.evaluation.plan import PICTURED, PlannedAttack, attack_stage, clean_stage
from robustkit.evaluation.records import (
    attack_records,
    certificate_records,
    clean_confidences,
    clean_draw_records,
    clean_records,
    witness_records,
)
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.run_log import RunLog
from robustkit.evidence.audit import ENSEMBLE
from robustkit.evidence.rows import NearnessRecord, Row
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch
from robustkit.statistics.randomized_smoothing import radius_factor

_COMMIT_SECONDS = 0.5  # a finished image waits this long for its verdict, and then for its commit
_JUDGED_AT_LEAST = 16  # clean images: fewer take as long on a CPU
_READ_AT_ONCE = 64  # images read from the data set together
OPENED_WITH = 64  # images that a session is opened with


class Sessions(NamedTuple):
    """The sessions of one model's part of an evaluation."""

    model: Session
    surrogates: Mapping[str, Session]  # by name


LeftOut = Callable[[PlannedAttack, Sequence[int], OracleCost], Collection[int]]


class ModelRun:
    """The part of an evaluation that is about one model.

    Args:
        evaluation: the whole.
        classifier: the model.
        store: the evidence.
        watch: is told of the progress.
        left_out: which of the images that a later member of an ensemble would attack it leaves out.
    """

    def __init__(
        self, evaluation: Evaluation, classifier: Classifier, store: Store, watch: ProgressWatch,
        left_out: LeftOut = lambda attack, images, cost: (),
    ) -> None:  # fmt: skip
        self.left_out = left_out
        self.evaluation, self.classifier, self.watch = evaluation, classifier, watch
        self.name = classifier.name
        self.share = evaluation.share
        self.ledger = Ledger(store, self.name, evaluation.plan, self.share, evaluation.seed)
        self.log = RunLog(store, self.name, watch)
        self.corrupted = CorruptedImages(evaluation, classifier.name, store, watch)

    @property
    def complete(self) -> bool:
        """Whether the evidence is complete, so that the model need not be touched."""
        return self.ledger.complete and self.corrupted.complete

    @property
    def unjudged(self) -> Numbers:
        """The images without a clean prediction, or not judged under every corruption, in the order of work."""
        todo, uncorrupted = self.ledger.clean_todo, self.corrupted.unfinished
        if not uncorrupted:
            return todo
        share = np.array(self.share, np.int64)
        return share[np.isin(share, [*todo.tolist(), *uncorrupted])]

    def run(self) -> None:
        """Clean accuracy, then every attack of the plan, as far as they are not in the evidence."""
        if self.complete:
            return
        with self.opened() as sessions:
            self.judge(sessions)
            for attack in self.evaluation.plan.attacks:
                self.attack(sessions, attack)
            self.look_back(sessions)

    @contextmanager
    def opened(self) -> Iterator[Sessions]:
        """The models, ready to be queried and looked over, while the context lasts."""
        evaluation = self.evaluation
        images = self._images(evaluation.ids[:OPENED_WITH])
        with ExitStack() as stack:
            session = stack.enter_context(self.classifier.session(images, evaluation.seed))
            surrogates = {each.name: stack.enter_context(each.session(images, evaluation.seed))
                          for each in evaluation.surrogates}  # fmt: skip
            self._warn(self.classifier, session, images)
            for each in evaluation.surrogates:
                self._warn(each, surrogates[each.name], images)
            self._require_access(session)
            self._warn_of_rounding()
            self._warn_out_of_reach(images[0].numel())
            self._warn_of_misfits(session, images)
            if isinstance(session.oracle, Randomized):
                self.log.note_randomized(session.oracle, begun=bool(self.ledger.clean_done))
            yield Sessions(session, surrogates)

    def judge(self, sessions: Sessions) -> None:
        """Judge clean images, and corrupted ones if the run has any."""
        with self.log.timed("clean"):
            self._judge_clean(sessions.model)
        self._warn_if_guessing()
        if not self.corrupted.complete:
            with self.log.timed("corruptions"):
                self.corrupted.judge(sessions.model, self._input)

    def attack(self, sessions: Sessions, attack: PlannedAttack) -> None:
        """Attack the images that are neither finished nor already broken."""
        if attack.attack.bisects:
            self.log.note_bisection(attack.name, attack.attack.radii)
        with self.log.timed(f"{attack.threat.norm} {attack.threat.eps_text} {attack.name}"):
            surrogate = sessions.surrogates[attack.column.surrogate] if attack.column.surrogate is not None else None
            self._attack(sessions.model, attack, surrogate)

    def look_back(self, sessions: Sessions) -> None:
        """Warn if a model answers otherwise than at the start, or had to be queried slowly."""
        for warning in changed_since_start(self.classifier, sessions.model):
            self.log.warn(warning)
        self._note_layouts(sessions.model, *sessions.surrogates.values())

    def _judge_clean(self, session: Session) -> None:
        ledger, smoothed = self.ledger, isinstance(session.oracle, Smoothed)
        self.watch.stage(clean_stage(self.name), len(self.share), ledger.clean_done)
        # The many copies of an image that is smoothed are worth a commit of its own.
        todo, place, size = ledger.clean_todo, 0, 1 if smoothed else _JUDGED_AT_LEAST
        while part := todo[place : place + size].tolist():
            start, place = time.monotonic(), place + len(part)
            x, y = self.evaluation.data.batch(part)
            ledger.write(self._clean_rows(session, self._checked(x, part), y, part))
            self.watch.advance(len(part), ledger.clean_correct / ledger.clean_done)
            if not smoothed:
                quick = time.monotonic() - start < _COMMIT_SECONDS / 2
                size = min(2 * size, _READ_AT_ONCE) if quick else _JUDGED_AT_LEAST

    def _clean_rows(self, session: Session, images: Tensor, y: Tensor, part: Sequence[int]) -> list[Row]:
        """Predictions for clean images and, of a smoothed model, what is certain about them."""
        oracle = session.oracle
        if not isinstance(oracle, Smoothed):
            verdicts = session.clean_verdicts(images, part)
            scores = checked_scores(verdicts.scores, y, self.name, part)
            draws = session.clean_draws(images, y.tolist(), part)
            return [
                *clean_records(self.name, part, y, verdicts.labels, scores),
                *clean_confidences(
                    self.name, part, oracle.confidences(scores, verdicts.labels.tolist()), self._pictured
                ),
                *([] if draws is None else clean_draw_records(self.name, part, draws, verdicts.forwards)),
            ]
        votes = oracle.poll(images, part)
        scores = checked_scores(votes.estimation.cpu(), y, self.name, part)
        certified = votes.certified(oracle.smoothing, images[0].numel())
        return [
            *clean_records(self.name, part, y, oracle.decide(scores), scores),
            *certificate_records(self.name, part, votes.selection.argmax(1), votes.estimation, certified),
        ]

    def _attack(self, session: Session, attack: PlannedAttack, surrogate: Session | None) -> None:
        ledger, evaluation = self.ledger, self.evaluation
        ledger.carry_over(attack)
        todo, finished = self._leave_out(session, attack), ledger.finished(attack)
        robust = ledger.robust(attack)
        self.watch.stage(attack_stage(self.name, attack), len(todo) + finished, finished)
        slots = evaluation.slots or (surrogate or session).sizes.at_once
        pending = _Pending(ledger, partial(self._rows_of, attack))
        outcomes = run(
            session, attack.attack, self._jobs(todo, attack, surrogate), slots=slots, seed=evaluation.seed,
            surrogate=surrogate, tick=pending.tick, patience=0 if session.metered else _COMMIT_SECONDS,
            measure=attack.member.measures,
        )  # fmt: skip
        try:
            for outcome in outcomes:
                pending.outcomes.append(outcome)
                robust -= outcome.success
                self.watch.advance(1, robust / len(self.share))
        finally:
            # Also when interrupted: what is finished is kept.
            pending.write()

    def _leave_out(self, session: Session, attack: PlannedAttack) -> Numbers:
        """Leave out those images that the attack passes over; returns the others that are to do."""
        todo = self.ledger.todo(attack)
        out = self.ledger.passed_over(attack, todo, noisy=not isinstance(session.oracle, Plain))
        todo = todo[~np.isin(todo, out)]
        further = np.fromiter(self.left_out(attack, todo.tolist(), session.oracle.cost), np.int64)
        self.ledger.leave_out(attack, np.concatenate([out, further]))
        return todo[~np.isin(todo, further)]

    def _rows_of(self, attack: PlannedAttack, outcomes: Sequence[Outcome]) -> Iterator[Row]:
        yield from attack_records(self.name, attack, outcomes, self._pictured)
        for outcome in outcomes:
            yield from _zero_gradients(self.name, attack, outcome)
            if outcome.success and self.evaluation.keep_adversarial:
                yield from witness_records(self.name, attack, outcome)

    def _jobs(self, todo: Numbers, attack: PlannedAttack, surrogate: Session | None) -> Iterator[Job]:
        """The images one after the other, read a few at a time; targeted attacks aim at near classes, if known."""
        parts = parts_of(todo, _READ_AT_ONCE)
        # On a GPU files are decoded while it works. On a CPU the decoder would take the time from the model.
        ahead = self._input.device.type == "cuda" and isinstance(self.evaluation.data, LazyData)
        read = read_ahead(self._read, parts) if ahead else ((part, self._read(part)) for part in parts)
        for part, (x, y) in read:
            images = self._input.moved(x)
            aimed = attack.attack.targets > 0 or surrogate is not None
            rankings = self._rankings(images, y, part, surrogate) if aimed else {}
            near = self.ledger.near(attack, part)
            for number, image, label in zip(part, images, y.tolist(), strict=True):
                aims = self._aims(attack, near.get(number), rankings.get(number, []))
                yield Job(number, image, label, loss_targets_of(attack.attack, aims))

    def _aims(self, attack: PlannedAttack, near: NearnessRecord | None, ranking: list[int]) -> list[int]:
        """The classes to aim at: those that were measured as near, and of the likeliest as many as make the least.

        The likeliest alone where nothing was measured, or the gradients mislead.
        """
        nearest = [] if near is None else self.ledger.store.near_classes(near)
        least = attack.member.targets_at_least
        if near is None or (not nearest and (least == 0 or near.ratio == 0)):
            return ranking
        further = [each for each in ranking if each not in nearest]
        return nearest + further[: max(least - len(nearest), 0)]

    def _read(self, part: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images and labels in the host's memory; pinned for a GPU, so that the copy to it waits for nothing."""
        x, y = self.evaluation.data.batch(part)
        x = checked_images(x, (0, 1), part)
        return x.pin_memory() if self._input.device.type == "cuda" else x, y

    def _rankings(
        self, images: Tensor, y: Tensor, part: Sequence[int], surrogate: Session | None
    ) -> dict[int, list[int]]:
        """The wrong classes of each image, likeliest first, as the queried model ranks them."""
        if surrogate is None:
            return self.ledger.store.rankings(self.name, part)
        scores = checked_scores(surrogate.judge(images), y, surrogate.name, part)
        return {number: likeliest(row, int(label)) for number, row, label in zip(part, scores, y, strict=True)}

    def _images(self, part: Sequence[int]) -> Tensor:
        return self._checked(self.evaluation.data.batch(part)[0], part)

    @cached_property
    def _pictured(self) -> frozenset[int]:
        """The images of which there are pictures."""
        return frozenset(self.evaluation.ids[:PICTURED])

    @cached_property
    def _input(self) -> InputFormat:
        # For as long as this object: the model stays where it is during its run.
        return self.classifier.input_format()

    def _checked(self, x: Tensor, part: Sequence[int]) -> Tensor:
        return self._input.moved(checked_images(x, (0, 1), part))

    def _warn(self, classifier: Classifier, session: Session, images: Tensor) -> None:
        for warning in checked_model(classifier, session, images):
            self.log.warn(f"{classifier.name}: {warning}")

    def _note_layouts(self, *sessions: Session) -> None:
        for session in sessions:
            if session.sizes.note is not None:
                self.log.warn(f"{session.name}: {session.sizes.note}")

    def _warn_if_guessing(self) -> None:
        """Say it before the attacks begin; the tables say it again."""
        classes = len(self.evaluation.data.class_names)
        sentence = clean_accuracy.guessing(self.ledger.clean_correct, self.ledger.clean_done, classes)
        if sentence:
            self.watch.say(f"{self.name}: {sentence} {clean_accuracy.REMEDY}")

    def _warn_of_misfits(self, session: Session, images: Tensor) -> None:
        randomized = isinstance(session.oracle, Randomized)
        columns = [column.name for column in self.evaluation.plan.columns if column.name.startswith("autoattack")]
        columns += [ENSEMBLE] if self.evaluation.plan.audit is not None and not randomized else []
        if columns:
            classes = session.logits(images[:1]).shape[1]
            for sentence in misfits(columns, randomized=randomized, classes=classes):
                self.log.warn(f"{self.name}: {sentence}")

    def _require_access(self, session: Session) -> None:
        """Refuse attacks by scores on a server whose first answers were labels, before any of them begins."""
        for attack in self.evaluation.plan.attacks:
            if attack.column.surrogate is None:
                session.require_access(attack.attack)
            session.in_its_levels(attack.attack)

    def _warn_of_rounding(self) -> None:
        data = self.evaluation.data
        if isinstance(data, EightBitImages) and data.changes(self.evaluation.ids[:_READ_AT_ONCE]):
            self.log.warn(
                f"The images of {data.name} are no pictures of 8 bits, which is what a server gets, so every image of "
                "this run is rounded to 256 levels first."
            )

    def _warn_out_of_reach(self, values: int) -> None:
        how = self.classifier.smoothing
        if how is None:
            return
        for norm, text, eps, *_ in self.evaluation.plan.threats:
            most = how.reach * radius_factor(norm, values)
            if eps > most:
                self.log.warn(
                    f"{self.name}: at {norm} {text} nothing can be certified: with sigma {how.sigma:g} and "
                    f"{how.n:,} copies no radius exceeds {most:.3g}; take a larger sigma or more copies."
                )


def _zero_gradients(model: str, attack: PlannedAttack, outcome: Outcome) -> list[Row]:
    """A row for an image that stands and had no gradient in half of the steps or more, for the check of that name."""
    if not outcome.blind:
        return []
    place = attack.threat.norm, attack.threat.eps_text, zero_gradients.PROBE + attack.name
    return [ProbeRecord(model, *place, outcome.sample, 1, outcome.zero_backwards, 0, 0)]


class _Pending:
    """Outcomes that are not on the disk yet.

    Args:
        ledger: that writes them.
        rows_of: makes rows of evidence of them.
    """

    def __init__(self, ledger: Ledger, rows_of: Callable[[Sequence[Outcome]], Iterator[Row]]) -> None:
        self.ledger, self.rows_of = ledger, rows_of
        self.outcomes: list[Outcome] = []
        self._written = self._ticked = time.monotonic()

    def tick(self, live: int) -> None:
        """Write the outcomes if they would wait too long for the next tick."""
        now = time.monotonic()
        step, self._ticked = now - self._ticked, now
        if self.outcomes and now + step - self._written > _COMMIT_SECONDS:
            self.write()

    def write(self) -> None:
        """Commit the outcomes."""
        self.ledger.write(self.rows_of(self.outcomes))
        self.outcomes, self._written = [], time.monotonic()
