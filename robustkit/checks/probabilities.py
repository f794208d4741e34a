"""Outputs that are probabilities: gradients through a softmax vanish, and attacks look weaker than they are."""

from collections.abc import Iterator

import torch

from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts
from robustkit.classifier.sanity_checks import looks_like_probabilities


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding, from the stored answers to clean images."""
    if facts.says_probabilities:
        yield Finding("", "ok", "The model returns probabilities, and the attacks were told so.")
    elif not facts.logits or not facts.deterministic:
        yield Finding("", "not_applicable", "No logits of a deterministic model are stored.")
    else:
        found = any(looks_like_probabilities(torch.from_numpy(logits.copy())) for logits in facts.logits)
        text = "the model's outputs lie in [0, 1] and add up to 1 for every image, as probabilities do."
        usual = "The model's outputs are not probabilities."
        yield Finding("", "failed" if found else "ok", text if found else usual)


RULE = Rule(
    name="probabilities",
    title="The model returns logits",
    level="quick",
    severity="invalidating",
    note="outputs look like probabilities",
    remedy="Evaluate again with robustkit evaluate --probabilities, or return what goes into the softmax.",
    judge=judge,
    said_as="The model seems to return probabilities",
)
