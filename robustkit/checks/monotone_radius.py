"""A larger ball holds every point of a smaller one: what is broken at one radius is broken at all larger ones.

A run carries errors over from smaller radii, so evidence that contradicts this was not written by one. Whether the
attacks find more in larger balls by themselves is Athalye et al. 2018's fifth sign; the carried rows tell it apart.
"""

from collections.abc import Iterator
from itertools import pairwise
from operator import attrgetter

from robustkit.checks.check import Finding, Rule
from robustkit.checks.facts import ModelFacts, RunThreat
from robustkit.checks.image_set import ImageSet


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each norm that has several radii."""
    norms = dict.fromkeys(place.norm for place in facts.radii)
    several = [norm for norm in norms if sum(place.norm == norm for place in facts.radii) > 1]
    if not several:
        yield Finding("", "not_applicable", "The run has one radius in each norm.")
    for norm in several:
        places = sorted((place for place in facts.radii if place.norm == norm), key=attrgetter("eps"))
        yield _finding(norm, facts, places)


def _finding(norm: str, facts: ModelFacts, places: list[RunThreat]) -> Finding:
    lost = ImageSet()
    for smaller, larger in pairwise(places):
        broken = ImageSet.union(rows.broken for rows in facts.under(smaller).values())
        judged = ImageSet.union(rows.images for rows in facts.under(larger).values())
        lost |= broken & judged & facts.survivors(larger)
    text = f"{len(lost)} images that are broken at one radius in {norm} survive a larger one."
    return Finding(norm, "failed" if lost else "ok", text, tuple(sorted(lost)), {"lost": len(lost)})


RULE = Rule(
    name="monotone_radius",
    title="No image recovers at a larger radius",
    level="quick",
    severity="invalidating",
    note="results contradict each other",
    remedy="The evidence was changed or damaged: look with robustkit verify, and evaluate again.",
    judge=judge,
)
