"""Rows with made-up verdicts, for benchmarks of the process that writes the evidence."""

from robustkit.evaluation.lanes import Lane
from robustkit.evaluation.resolved import Evaluation
from robustkit.evidence.rows import AttackRecord, CleanRecord, Row


def made_up_row(evaluation: Evaluation, lane: Lane, image: int, *, broken: bool = False) -> Row:
    """What a worker would send about an image of a lane: a correct prediction, or the verdict of the attack."""
    name, label = evaluation.classifiers[lane.model].name, int(evaluation.data.labels[image])
    if lane.attack is None:
        return CleanRecord(name, image, label, label, " ".join(str(k) for k in range(10) if k != label))
    planned = evaluation.plan.attacks[lane.attack]
    return AttackRecord(
        name, planned.threat.norm, planned.threat.eps_text, planned.name, image, int(broken), label, 1, 0, -1,
        0.01, 0.08, 0.6, 64, forwards=2, backwards=1,
    )  # fmt: skip
