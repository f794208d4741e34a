"""Adversarial examples of a randomized model are still misclassified on fresh draws.

Neither the attack nor the verdict used these. Tools that judge one draw count points that suited this draw. Here a
verdict needs a class that is significantly the most frequent one, so nearly all hold; where they do not, the model's
randomness is not the same at every query.
"""

from collections.abc import Iterator

from robustkit.checks.check import Finding, Rule, graded_share
from robustkit.checks.facts import ModelFacts, RunThreat

_NOTED, _WRONG = 0.05, 0.2  # lower end of the share of errors that do not hold


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat."""
    if not facts.randomized:
        yield Finding("", "not_applicable", "The model is not randomized.")
        return
    for place in facts.places:
        yield _finding(place, facts)


def _finding(place: RunThreat, facts: ModelFacts) -> Finding:
    errors, lost = set[int](), set[int]()
    for name, rows in facts.under(place).items():
        answers = facts.fresh.get((*place, name), {})
        known = rows.broken & set(answers)
        errors |= known
        lost |= {number for number in known if 2 * answers[number].right > answers[number].draws}
    text = f"{len(lost)} of {len(errors)} adversarial examples are classified correctly by most of their fresh draws."
    status = graded_share(len(lost), len(errors), noted=_NOTED, wrong=_WRONG)
    return Finding(place.text, status, text, tuple(sorted(lost)), {"lost": len(lost), "errors": len(errors)})


RULE = Rule(
    name="fresh_answers",
    title="Adversarial examples of a randomized model are still misclassified on fresh draws",
    level="quick",
    severity="invalidating",
    note="adversarial examples do not hold on fresh draws",
    remedy="The model keeps a state between queries, or its randomness ignores the seeds: see robustkit diagnose.",
    judge=judge,
)
