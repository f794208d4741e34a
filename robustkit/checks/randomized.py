"""Models that answer at random: attacks must average over draws, and verdicts need many answers.

robustkit does both (expectation over transformation, Athalye et al. 2018); other tools that judge one draw do not, and
their numbers differ.
"""

from collections.abc import Iterator

from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding, from how the run judged the model."""
    if facts.randomized:
        yield Finding("", "warning", "the model answers the same query differently each time.")
    else:
        yield Finding("", "ok", "The model repeats its answers, or is smoothed.")


RULE = Rule(
    name="randomized",
    title="The model repeats its answers",
    level="quick",
    severity="minor",
    note="answers at random",
    remedy="Its attacks averaged over draws; give robustkit evaluate --eot more of them, and read draw_accuracy beside "
    "the accuracy.",
    judge=judge,
)
