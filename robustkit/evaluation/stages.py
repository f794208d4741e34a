"""The stages of an evaluation by name, and how much work each is expected to be."""

from robustkit.classifier.oracle import OracleCost
from robustkit.evaluation.plan import PlannedAttack
from robustkit.evaluation.resolved import Evaluation

# A later member of an ensemble attacks what the members before it left, and of that what is near to another class:
# a rough share, only for the time that is left.
_LEFT = 0.25


def clean_stage(model: str) -> str:
    """The name of the stage of clean images."""
    return f"{model} clean"


def attack_stage(model: str, attack: PlannedAttack) -> str:
    """The name of the stage of one attack in one threat model."""
    return f"{model} {attack.threat.norm} {attack.threat.eps_text} {attack.name}"


def expected_work(evaluation: Evaluation) -> dict[str, float]:
    """The passes of an image in each stage, in the order of work: a guess, from what an image needs that stands."""
    work: dict[str, float] = {}
    for classifier in evaluation.classifiers:
        work[clean_stage(classifier.name)] = 1.0
        for attack in evaluation.plan.attacks:
            passes = attack.at_most(OracleCost(1, 1))
            share = 1.0 if attack.member is attack.column.members[0] else _LEFT
            work[attack_stage(classifier.name, attack)] = share * (passes.forwards + passes.backwards)
    return work
