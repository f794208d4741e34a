"""Outputs that are no logits: gradients through a softmax or a sigmoid vanish, and those of equal outputs say nothing.

Attacks then look weaker than they are.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from robustkit.checks.check import Finding, Rule, surely_more
from robustkit.checks.facts import ModelFacts
from robustkit.classifier.rejection import of_classes
from robustkit.classifier.sanity_checks import in_unit_range, looks_like_probabilities

# Images, and the share of them, whose two largest outputs are equal: numbers of 16 bits sometimes are.
_FEWEST, _FEW = 3, 0.02
_SURE = 0.9  # an output of a sigmoid is larger where the network is sure


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding, from the stored answers to clean images."""
    if facts.says_probabilities:
        yield Finding("", "ok", "The model returns probabilities, and the attacks were told so.")
    elif not facts.logits or not facts.deterministic:
        yield Finding("", "not_applicable", "No logits of a deterministic model are stored.")
    else:
        whole = [torch.from_numpy(logits.copy()) for logits in facts.logits]
        answers = list(map(of_classes, whole)) if facts.rejects else whole
        if any(map(looks_like_probabilities, [*whole, *answers])):
            text = "the model's outputs lie in [0, 1] and add up to 1 for every image, as probabilities do."
            yield Finding("", "failed", text)
        else:
            yield _other(answers, facts)


def _other(answers: list[Tensor], facts: ModelFacts) -> Finding:
    # Of the shapes that the evidence allows the one with a column for each class, if that is known; else all of them.
    answers = [each for each in answers if each.shape[1] == facts.classes] or answers
    tied, images = min((_ties(each), len(each)) for each in answers)
    numbers = {"tied": tied, "images": images}
    if not facts.gradients_followed:
        return Finding("", "ok", "No attack follows gradients of the model's outputs.", (), numbers)
    if surely_more(tied, images, _FEW, _FEWEST):
        text = (
            f"on {tied} of {images} clean images the two largest outputs are equal, as where outputs are clipped, "
            "rounded or counted; there the order of the classes decides, and no gradient leads on."
        )
        return Finding("", "warning" if facts.straight_through else "failed", text, (), numbers)
    if all(map(_like_sigmoids, answers)):
        text = "the model's outputs lie in [0, 1], as those of a sigmoid do, whose gradients vanish near 0 and 1."
        return Finding("", "warning", text, (), numbers)
    return Finding("", "ok", "The model's outputs are not probabilities.", (), numbers)


def _ties(logits: Tensor) -> int:
    """How many rows of `[n, K]` have equal largest entries."""
    if logits.shape[1] < 2:
        return 0
    first, second = logits.topk(2, 1).values.unbind(1)
    return int((first == second).sum())


def _like_sigmoids(logits: Tensor) -> bool:
    return in_unit_range(logits) and bool((logits > _SURE).any())


RULE = Rule(
    name="probabilities",
    title="The model returns logits",
    level="quick",
    severity="invalidating",
    note="outputs are not logits",
    remedy=(
        "Return what goes into the softmax, the sigmoid or the clipping; or evaluate with --probabilities, or with "
        "--straight-through if outputs are rounded or counted."
    ),
    judge=judge,
    said_as="The model seems to return probabilities",
)
