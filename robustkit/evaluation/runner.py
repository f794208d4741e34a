"""One model's part of an evaluation: clean images first, then every attack of the plan, rows committed as they come."""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import islice

import numpy as np
from torch import Tensor

from robustkit.checks import clean_accuracy
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.input_format import InputFormat
from robustkit.classifier.oracle import Plain
from robustkit.classifier.randomized import Randomized
from robustkit.classifier.sanity_checks import changed_since_start, checked_batch, checked_model, checked_scores
from robustkit.classifier.session import Session
from robustkit.classifier.smoothed import Smoothed
from robustkit.data.eight_bits import EightBitImages
from robustkit.errors import UserError
from robustkit.evaluation.attacking import COMMIT_SECONDS, READ_AT_ONCE, AttackPart, LeftOut, Sessions, attacked
from robustkit.evaluation.corrupted import CorruptedImages
from robustkit.evaluation.ensemble_fit import misfits
from robustkit.evaluation.image_marks import Numbers
from robustkit.evaluation.ledger import Ledger
from robustkit.evaluation.plan import PICTURED, PlannedAttack, attack_stage, clean_stage
from robustkit.evaluation.records import certificate_records, clean_confidences, clean_draw_records, clean_records
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.run_log import RunLog
from robustkit.evidence.audit import ENSEMBLE
from robustkit.evidence.rows import Row
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch
from robustkit.statistics.randomized_smoothing import radius_factor

_JUDGED_AT_LEAST = 16  # clean images: fewer take as long on a CPU
OPENED_WITH = 64  # images that a session is opened with


def first_images(ids: Sequence[int], failed: Collection[int]) -> tuple[int, ...]:
    """The first images of a run, with which sessions are opened, without those that end the process."""
    return tuple(islice((image for image in ids if image not in failed), OPENED_WITH))


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
        first, _ = checked_batch(evaluation.data, first_images(evaluation.ids, self.ledger.store.failed(self.name)))
        images = self._input.moved(first)
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
            if isinstance(session.oracle, (Plain, Randomized)) and not session.answers_only:
                self.log.note_gradient_stops(session.gradient_stops(images[:1]))
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
        with self.log.timed(attack.cell):
            part = self.part(sessions, attack)
            finished, robust = self.ledger.finished(attack), self.ledger.robust(attack)
            self.watch.stage(attack_stage(self.name, attack), part.left + finished, finished)
            for outcome in attacked(part):
                robust -= outcome.success
                self.watch.advance(1, robust / len(self.share))

    def part(self, sessions: Sessions, attack: PlannedAttack) -> AttackPart:
        """The images that are neither finished nor already broken, ready to be attacked."""
        if attack.attack.bisects:
            self.log.note_bisection(attack.name, attack.attack.radii)
        return AttackPart(self.evaluation, self.ledger, sessions, self._input, attack, self.left_out, self.log)

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
            x, y = checked_batch(self.evaluation.data, part)
            ledger.write(self._clean_rows(session, self._input.moved(x), y, part))
            self.watch.advance(len(part), ledger.clean_correct / ledger.clean_done)
            if not smoothed:
                quick = time.monotonic() - start < COMMIT_SECONDS / 2
                size = min(2 * size, READ_AT_ONCE) if quick else _JUDGED_AT_LEAST

    def _clean_rows(self, session: Session, images: Tensor, y: Tensor, part: Sequence[int]) -> list[Row]:
        """Predictions for clean images and, of a smoothed model, what is certain about them."""
        oracle = session.oracle
        if not isinstance(oracle, Smoothed):
            verdicts = session.clean_verdicts(images, part)
            scores = checked_scores(verdicts.class_scores, y, self.name, part)
            if session.rejects:
                self._require_all_classes(scores.shape[1])
            draws = session.clean_draws(images, y.tolist(), part)
            return [
                *clean_records(self.name, part, y, verdicts.labels, scores),
                *clean_confidences(
                    self.name, part, oracle.confidences(verdicts.scores, verdicts.labels.tolist()), self._pictured
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

    @cached_property
    def _pictured(self) -> frozenset[int]:
        """The images of which there are pictures."""
        return frozenset(self.evaluation.ids[:PICTURED])

    @cached_property
    def _input(self) -> InputFormat:
        # For as long as this object: the model stays where it is during its run.
        return self.classifier.input_format()

    def _warn(self, classifier: Classifier, session: Session, images: Tensor) -> None:
        for warning in checked_model(classifier, session, images):
            self.log.warn(f"{classifier.name}: {warning}")

    def _note_layouts(self, *sessions: Session) -> None:
        for session in sessions:
            if session.sizes.note is not None:
                self.log.warn(f"{session.name}: {session.sizes.note}")

    def _require_all_classes(self, classes: int) -> None:
        """Refuse a model whose last output is that of a class, also if no image of the run is of that class."""
        names = self.evaluation.data.class_names
        if classes < len(names):
            raise UserError(
                f"{self.name} has {classes} classes beside the rejection, and {self.evaluation.data.name} has "
                f"{len(names)}; leave out rejects (--rejects) if its last output is that of a class."
            )

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
            classes = session.classes(images[:1])
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
        if isinstance(data, EightBitImages) and data.changes(self.evaluation.ids[:READ_AT_ONCE]):
            self.log.warn(
                f"A server gets 8-bit images, and the images of {data.name} have more levels; every image of "
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
