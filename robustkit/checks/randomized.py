"""Randomized models: attacks must average over draws, and verdicts need many answers.

robustkit does both (expectation over transformation, Athalye et al. 2018); other tools that judge one draw do not, and
their numbers differ.
"""

from collections.abc import Iterator

from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding, from how the run judged the model."""
    if facts.randomized:
        yield Finding("", "warning", "answers to the same query differ.")
    else:
        yield Finding("", "ok", "The model is deterministic, or is smoothed.")


RULE = Rule(
    name="randomized",
    title="The model is deterministic",
    level="quick",
    severity="minor",
    note="the model is randomized",
    remedy="Attacks averaged gradients over draws; give robustkit evaluate --eot more of them, and read draw_accuracy "
    "next to the accuracy.",
    judge=judge,
)
