"""How much work each stage of an evaluation is expected to be."""

from robustkit.evaluation.check_costs import checks_at_most
from robustkit.evaluation.plan import attack_stage, checks_stage, clean_stage
from robustkit.evaluation.resolved import Evaluation

# A later member of an ensemble attacks what the members before it left, and of that what is near to another class:
# a rough share, only for the time that is left.
_LEFT = 0.25


def expected_work(evaluation: Evaluation) -> dict[str, float]:
    """The passes of an image in each stage, in the order of work: a guess, from what an image needs that stands."""
    work: dict[str, float] = {}
    for classifier in evaluation.classifiers:
        work[clean_stage(classifier.name)] = 1.0
        for attack in evaluation.plan.attacks:
            share = 1.0 if attack.member is attack.column.members[0] else _LEFT
            work[attack_stage(classifier.name, attack)] = share * attack.most_passes
    names = [classifier.name for classifier in evaluation.classifiers]
    for classifier in evaluation.classifiers:
        models = [classifier.name, *(name for name in names if name != classifier.name)]
        costs = checks_at_most(models, evaluation.plan, evaluation.checks, len(evaluation.ids))
        passes_of_all = sum(cost.forwards + cost.backwards for cost in costs)
        if passes_of_all:
            work[checks_stage(classifier.name)] = passes_of_all / len(evaluation.ids)
    return work
