"""Claims that no model can meet: two images of different classes that share a point of their balls.

Where the distance of two images is at most twice the radius, the point half-way between them lies in both balls and
in [0, 1]. It has one class, so at most one of the two images is robust. Carlini et al. 2019, arXiv:1902.06705, warn of
it: at an Linf radius of 0.5 every image can become grey, and nothing is better than guessing.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts, RunThreat
from robustkit.primitives.ball import NORMS
from robustkit.primitives.mask import unmasked

Pixels = Mapping[int, NDArray[np.floating[Any]]]
_GREY = 0.5


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat that is a norm."""
    stored = {each.sample: each.x for each in facts.witnesses if each.model == facts.model}
    places = [place for place in facts.radii if place.norm in NORMS]
    if not places:
        yield Finding("", "not_applicable", "This check is for Linf, L2, L1 and L0 with a radius.")
    for place in places:
        yield _finding(place, facts, stored)


def _finding(place: RunThreat, facts: ModelFacts, stored: Pixels) -> Finding:
    claimed = sorted(facts.survivors(place))
    if place.norm == "Linf" and place.eps >= _GREY and len({facts.labels[number] for number in claimed}) > 1:
        text = (
            "at this radius every image can be changed into the same grey image, which has only one class, so images "
            "of several classes cannot all be robust."
        )
        return Finding(place.text, "failed", text, tuple(claimed), {"images": len(claimed)})
    known = [number for number in claimed if number in stored]
    norm = unmasked(place.norm)
    pairs = [
        (one, other) for position, one in enumerate(known) for other in known[position + 1 :]
        if facts.labels[one] != facts.labels[other] and meet(stored[one], stored[other], norm, place.eps)
    ]  # fmt: skip
    images = tuple(sorted({number for pair in pairs for number in pair}))
    text = (
        f"{len(pairs)} pairs of images of different classes are both called robust, although the point half-way "
        "between them lies in the balls of both."
    )
    usual = f"No two of the {len(known)} stored survivors, of different classes, have balls that meet."
    return Finding(
        place.text, "failed" if pairs else "ok", text if pairs else usual, images, {"pairs": len(pairs)}
    )  # fmt: skip


def meet(one: NDArray[np.floating[Any]], other: NDArray[np.floating[Any]], norm: str, eps: float) -> bool:
    """Whether the balls of radius `eps` around two images have a point of [0, 1] in common, for certain."""
    if one.shape != other.shape:
        return False
    apart = np.abs(one.astype(np.float64) - other.astype(np.float64)).ravel()
    if norm == "L0":
        return math.ceil(np.count_nonzero(apart) / 2) <= eps
    length = {"Linf": apart.max(initial=0.0), "L2": math.sqrt(float(apart @ apart)), "L1": apart.sum()}[norm]
    return float(length) <= 2 * eps


RULE = Rule(
    name="impossible_claim",
    title="No result is impossible for these images",
    level="quick",
    severity="invalidating",
    note="an impossible result",
    remedy="The attacks failed, or the labels are wrong: run robustkit diagnose, and check the radius.",
    judge=judge,
)
