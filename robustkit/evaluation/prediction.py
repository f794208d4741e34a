"""The passes that a run will need, predicted from a pilot: the same evaluation of a random sample of its images.

What an image costs depends on how near it is to another class, which no plan knows. So the pilot measures it, with the
run's own attacks. Images do not influence each other, so those of the pilot cost what they will cost in the run.
"""

import math
from dataclasses import replace
from typing import NamedTuple

from robustkit.classifier.access import is_metered
from robustkit.classifier.classifier import Classifier
from robustkit.errors import UserError
from robustkit.evaluation.check_costs import predicted_checks
from robustkit.evaluation.plan import Passes, Plan, PlannedAttack
from robustkit.evaluation.resolved import Evaluation
from robustkit.evaluation.runner import ModelRun
from robustkit.evaluation.thinning import Counted, Thinning
from robustkit.evidence.audit import draw
from robustkit.evidence.certificates import certificate_passes
from robustkit.evidence.rows import AttackRecord, DrawRecord
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch

# Few images need most of the passes, and a pilot must meet some of them: bench/README.md has the figures.
_SHARE = 10  # one image in so many
_FEWEST = 50
_AUDITED = 16  # images; AutoAttack costs about the same for each that stands


class ExpectedCost(NamedTuple):
    """What one attack in one threat model will need, or the clean images."""

    attack: str
    threat: str  # "-" for clean images
    images: float
    forwards: float
    backwards: float
    bound: bool = False  # whether it is no prediction, but the most that it can be


class Prediction(NamedTuple):
    """What one model of a run will need."""

    model: str
    images: int  # of the pilot
    spent: int  # forwards and backwards of the pilot
    costs: tuple[ExpectedCost, ...]

    @property
    def forwards(self) -> float:
        """Of the run."""
        return sum(each.forwards for each in self.costs)

    @property
    def backwards(self) -> float:
        """Of the run."""
        return sum(each.backwards for each in self.costs)


def pilot_of(evaluation: Evaluation) -> Evaluation:
    """The same evaluation of a tenth of all images, or of 50 if that is more, but of half of them at most.

    The seed and the numbers of the images choose them.
    """
    count = len(evaluation.ids)
    size = max(math.ceil(count / _SHARE), min(_FEWEST, math.ceil(count / 2)))
    chosen = draw(evaluation.seed, evaluation.ids, size)
    ids = tuple(number for number in evaluation.ids if number in chosen)
    return replace(evaluation, ids=ids, plan=_with_fewer_audited(evaluation.plan), suite=None, shard=None)


def predicted(evaluation: Evaluation, classifier: Classifier, watch: ProgressWatch) -> Prediction:
    """What a model will need in an evaluation. The evidence of the pilot is kept in memory only.

    Raises:
        UserError: the evaluation cannot be done as asked, because of the model or its images.
    """
    if is_metered(classifier.model):
        raise UserError(
            f"A dry run would send requests to {classifier.name}, and not keep the answers; take --plan, or a run of "
            "fewer images, which the whole run goes on with."
        )
    pilot, store, thinning = pilot_of(evaluation), Store(None), Thinning(evaluation.seed)
    try:
        store.set_manifest(seconds={}, warnings=[])
        run = ModelRun(pilot, classifier, store, watch, thinning.left_out)
        run.run()
        scale = len(evaluation.ids) / len(pilot.ids)
        clean = _clean_forwards(classifier, store, len(pilot.ids))
        costs = [ExpectedCost("clean", "-", len(evaluation.ids), scale * clean, 0)]
        costs += _corrupted(evaluation, classifier, clean / len(pilot.ids))
        spent = clean
        planned = zip(evaluation.plan.attacks, pilot.plan.attacks, strict=True)
        for whole, attack in planned:
            factor = scale if whole.column.audit is None else _audit_scale(run, attack, whole.column.audit, scale)
            cost, passes = _cost(store, classifier.name, attack, thinning.counted(attack), factor)
            costs.append(cost)
            spent += passes
        checks, passes = predicted_checks(evaluation, pilot, classifier, store, watch)
        costs += [ExpectedCost(f"check {each.check}", *each[1:]) for each in checks]
        spent += passes
        return Prediction(classifier.name, len(pilot.ids), spent, tuple(costs))
    finally:
        store.close()


def _with_fewer_audited(plan: Plan) -> Plan:
    columns = [each if each.audit is None else replace(each, audit=min(_AUDITED, each.audit)) for each in plan.columns]
    return replace(plan, columns=tuple(columns))


def _clean_forwards(classifier: Classifier, store: Store, images: int) -> int:
    draws = [row.forwards for row in store.rows(DrawRecord, classifier.name, attack="clean")]
    if draws:
        return sum(draws)
    return images * certificate_passes(None if classifier.smoothing is None else vars(classifier.smoothing))


def _corrupted(evaluation: Evaluation, classifier: Classifier, clean: float) -> list[ExpectedCost]:
    """Verdicts on corrupted images cost what those on clean ones do; of a smoothed model, what those on points do."""
    if evaluation.suite is None:
        return []
    verdicts = len(evaluation.ids) * len(evaluation.suite.cells)
    each = clean if classifier.smoothing is None else classifier.smoothing.judges
    return [ExpectedCost("corruptions", "-", len(evaluation.ids), verdicts * each, 0)]


def _audit_scale(run: ModelRun, attack: PlannedAttack, audited: int, scale: float) -> float:
    """For how many audited images of the run each audited image of the pilot stands, before any is left out."""
    survivors, here = len(run.ledger.survivors(attack)), len(run.ledger.targets(attack))
    return min(audited, scale * survivors) / here if here else 0.0


def _cost(store: Store, model: str, attack: PlannedAttack, counted: Counted, scale: float) -> tuple[ExpectedCost, int]:
    """The expected cost of one attack in the run, and the passes that it needed in the pilot."""
    norm, eps_text = attack.threat.norm, attack.threat.eps_text
    rows = store.rows(AttackRecord, model, norm=norm, eps_text=eps_text, attack=attack.name)
    passes = {row.sample: counted.charged or Passes(row.forwards, row.backwards) for row in rows}
    of_all = [(weight, passes[image]) for image, weight in counted.weights.items()]
    images = scale * sum(weight for weight, _ in of_all)
    forwards = scale * sum(weight * each.forwards for weight, each in of_all)
    backwards = scale * sum(weight * each.backwards for weight, each in of_all)
    needed = sum(row.forwards + row.backwards for row in rows)
    return ExpectedCost(attack.name, f"{norm} {eps_text}", images, forwards, backwards), needed
