"""The passes of automatic checks on one model, after its attacks; rows committed as they come."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from robustkit.checks.facts import ModelFacts, ProbeRecord, RunThreat
from robustkit.checks.probing import REFUSED, CheckProbe, ImageBatch, ProbeBench, Wanted
from robustkit.checks.register import probes_of
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.sanity_checks import checked_batch
from robustkit.errors import UserError
from robustkit.evaluation.plan import checks_stage
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.runner import first_images
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch
from robustkit.primitives.protocol import Attack


class ModelChecks:
    """The part of an evaluation's checks that makes passes of its own.

    Args:
        evaluation: the whole.
        classifier: the model.
        facts: what is known about it.
        store: the evidence.
        watch: is told of the progress.
        most: images of each probe, for a pilot; None for all of them.
    """

    def __init__(
        self, evaluation: Evaluation, classifier: Classifier, facts: ModelFacts, store: Store, watch: ProgressWatch,
        most: int | None = None,
    ) -> None:  # fmt: skip
        self.most = most
        self.evaluation, self.classifier, self.facts = evaluation, classifier, facts
        self.store, self.watch = store, watch

    @property
    def complete(self) -> bool:
        """Whether all rows are in the evidence, so that the model need not be touched."""
        return next(self._todo(), None) is None

    def run(self) -> None:
        """Make the passes that are not in the evidence."""
        todo = list(self._todo())
        if not todo:
            return
        total, done = sum(len(wanted.images) for _, wanted in todo), 0
        with ExitStack() as stack:
            first = self._images(first_images(self.evaluation.ids, self.store.failed(self.classifier.name)))
            session = stack.enter_context(self.classifier.session(first.x, self.evaluation.seed))
            slots = self.evaluation.slots or session.sizes.at_once
            bench = ProbeBench(self.facts, self.classifier, session, self._images, self._attacks, slots)
            self.watch.stage(checks_stage(self.facts.model), total, done)
            for probe, wanted in todo:
                for row in _rows(probe, bench, wanted):
                    self.store.write([row])
                    self.watch.advance(1, len(self.facts.correct) / max(self.facts.n, 1))

    def _todo(self) -> Iterator[tuple[CheckProbe, Wanted]]:
        """The probes with the images that have no row yet."""
        for _, probe in probes_of(self.facts):
            for wanted in probe.wanted(self.facts):
                rows = self.facts.probes.get((*wanted.place, wanted.probe), {})
                left = tuple(number for number in wanted.images[: self.most] if number not in rows)
                if left:
                    yield probe, wanted._replace(images=left)

    def _attacks(self, place: RunThreat) -> list[Attack]:
        return self.evaluation.plan.attacks_at(*place)

    def _images(self, numbers: Sequence[int]) -> ImageBatch:
        x, y = checked_batch(self.evaluation.data, list(numbers))
        return ImageBatch(tuple(numbers), self.classifier.input_format().moved(x), y.long().cpu())


def _rows(probe: CheckProbe, bench: ProbeBench, wanted: Wanted) -> Iterator[ProbeRecord]:
    """The rows of a probe; where the model cannot be asked, rows that say so."""
    left = dict.fromkeys(wanted.images)
    try:
        for row in probe.run(bench, wanted):
            left.pop(row.sample, None)
            yield row
    except UserError:
        yield from (bench.record(wanted, number, False, REFUSED) for number in left)
