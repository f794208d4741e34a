"""All checks, in the order in which reports show them, and how they are applied."""

from collections.abc import Iterator, Sequence
from typing import Final

from robustkit.checks import (
    binarization,
    black_box_wins,
    clean_accuracy,
    consistent_loss,
    eight_bits,
    finite_difference,
    finite_gradients,
    fixed_randomness,
    fresh_answers,
    gradient_direction,
    gradients_mislead,
    impossible_claim,
    longer_search,
    monotone_radius,
    normalisation,
    other_targets,
    probabilities,
    random_search,
    randomized,
    restarts,
    single_step,
    straight_through,
    transfer,
    unbounded,
    unfinished,
    unseen_values,
    unstable_loss,
    zero_gradients,
)
from robustkit.checks.check import Check, Finding, Rule, reaches
from robustkit.checks.facts import ModelFacts
from robustkit.checks.probing import CheckProbe

RULES: Final[tuple[Rule, ...]] = tuple(
    module.RULE
    for module in (
        clean_accuracy, probabilities, randomized, fresh_answers, zero_gradients, gradients_mislead, black_box_wins,
        single_step, straight_through,
        unfinished, monotone_radius, impossible_claim, normalisation, finite_gradients, unbounded,
        gradient_direction, finite_difference, unseen_values, unstable_loss, longer_search,
        other_targets, random_search, transfer, eight_bits, restarts, consistent_loss,
        fixed_randomness, binarization,
    )
)  # fmt: skip


def checks_of(facts: ModelFacts) -> tuple[Check, ...]:
    """The rows of one model; none if checks are switched off."""
    if facts.level == "none":
        return ()
    return tuple(check for rule in RULES for check in _rows(rule, facts))


def probes_of(facts: ModelFacts) -> list[tuple[Rule, CheckProbe]]:
    """The probes that the level of the facts includes, each with its rule."""
    return [(rule, probe) for rule in RULES if _included(rule, facts) for probe in rule.probes]


def warnings_of(checks: Sequence[Check], stored: Sequence[str] = ()) -> list[str]:
    """The sentences of rows that a reader must not miss; of a rule with a worst threat, the one about that.

    Args:
        checks: of one model.
        stored: warnings of the run itself.
    """
    by_name = {rule.name: rule for rule in RULES}
    sentences = []
    for name in dict.fromkeys(check.name for check in checks):
        alarms = [
            check for check in checks if check.name == name and check.alarming and check.severity == "invalidating"
        ]
        extent = by_name[name].worst_of
        if extent is not None and alarms:
            alarms = [max(alarms, key=lambda check: (check.status == "failed", extent(_finding(check))))]
        said = by_name[name].said_as
        sentences += [
            check.sentence
            for check in alarms
            if not (said and any(text.startswith(f"{check.model}: {said}") for text in stored))
        ]
    return sentences


def _rows(rule: Rule, facts: ModelFacts) -> Iterator[Check]:
    if not _included(rule, facts):
        how = f"Needs further passes: robustkit evaluate ... --checks {rule.level}"
        yield _check(rule, facts.model, Finding("", "not_run", how))
        return
    for finding in rule.judge(facts):
        yield _check(rule, facts.model, finding)


def _check(rule: Rule, model: str, finding: Finding) -> Check:
    alarming = finding.status in ("warning", "failed")
    return Check(
        model, finding.threat, rule.name, rule.title, rule.level, finding.status, rule.severity, finding.text,
        rule.note if alarming else "", rule.remedy if alarming else "", finding.images, finding.numbers,
    )  # fmt: skip


def _finding(check: Check) -> Finding:
    return Finding(check.threat, check.status, check.finding, check.images, check.numbers)


def _included(rule: Rule, facts: ModelFacts) -> bool:
    return reaches(rule.level, facts.level)
