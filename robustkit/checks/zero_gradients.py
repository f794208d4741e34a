"""Gradients that are exactly zero: an attack that follows them says nothing about the image.

AutoAttack warns of it (Croce & Hein 2020). Ours counts images on which half of the gradients or more were zero, under
every attack and every loss, and names them.
"""

from collections.abc import Iterator

from robustkit.checks.black_box_wins import MASKED
from robustkit.checks.check import Finding, Rule, graded, surely_more
from robustkit.checks.facts import ModelFacts, RunThreat
from robustkit.checks.image_set import ImageSet

PROBE = "zero gradients in "  # the name of the rows that an attack leaves, before its own
_STEPS = 1
_MOST = 0.05  # share of the images that gradients left


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat."""
    for place in facts.places:
        attacks = facts.under(place)
        steps = {name: rows.backwards >= _STEPS for name, rows in attacks.items()}
        followed = {name: rows.images_where(steps[name]) for name, rows in attacks.items()}
        tried = ImageSet.union(followed.values())
        broken = ImageSet.union(rows.images_where(steps[name] & (rows.success > 0)) for name, rows in attacks.items())
        zero = {name: ImageSet(facts.probes.get((*place, PROBE + name), {})) for name in followed}
        blind = ImageSet.union(zero[name] & images for name, images in followed.items())
        # Of a large run these are many, and without blind ones they take nothing away.
        seeing = ImageSet.union(images - zero[name] for name, images in followed.items() if blind)
        if not tried:
            yield Finding(place.text, "not_applicable", "No attack followed gradients.")
        else:
            yield _finding(place, tried - broken, blind - broken - seeing)


def _finding(place: RunThreat, left: ImageSet, blind: ImageSet) -> Finding:
    text = (
        f"of the {len(left)} images that attacks with gradients did not break, {len(blind)} had gradients that are "
        f"exactly zero in half of the steps or more{', so these attacks say nothing about them' if blind else ''}."
    )
    status = graded(failed=surely_more(len(blind), len(left), _MOST), warning=bool(blind))
    return Finding(place.text, status, text, tuple(sorted(blind)), {"left": len(left), "zero": len(blind)})


RULE = Rule(
    name="zero_gradients",
    title="Gradients are not exactly zero",
    level="quick",
    severity="invalidating",
    note=MASKED,
    remedy="Find the layer, or the loss that saturates, with robustkit diagnose.",
    judge=judge,
    worst_of=lambda finding: finding.numbers["zero"],
)
