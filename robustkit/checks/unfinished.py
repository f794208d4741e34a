"""An attack that was still finding adversarial examples when its budget ended: more steps would find more.

Pintor et al. 2022, arXiv:2106.09947, call it incomplete optimisation and read it from the loss. Ours reads it from
successes: images that no attack of the run broke before the last quarter of this attack's steps.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.check import Finding, Rule, surely_more
from robustkit.checks.facts import ModelFacts
from robustkit.checks.image_set import ImageSet

_LATE = 0.75  # of the steps
_FEWEST_STEPS = 8
_FEWEST = 3
_MOST = 0.02  # of the images that stood at that point, by the lower end of the interval


def judge(facts: ModelFacts) -> Iterator[Finding]:
    """One finding for each threat, about the attack that breaks most images late."""
    if facts.transferred:
        yield Finding(
            "", "not_applicable", "All attacks queried a surrogate model, and only their last points were judged."
        )
        return
    for place in facts.radii:
        rows = facts.under(place)
        measured = [
            late for entry in facts.attacks
            if (late := _late(str(entry["name"]), entry, rows, facts.survivors(place))) is not None
        ]  # fmt: skip
        if not measured:
            yield Finding(place.text, "not_applicable", "No attack with gradients ran alone for eight steps or more.")
            continue
        name, images, standing = max(measured, key=lambda each: (len(each[1]), each[0]))
        rising = surely_more(len(images), standing, _MOST, _FEWEST)
        text = (
            f"of the {standing} images that neither the other attacks nor three quarters of the steps of {name} broke, "
            f"the last quarter of its steps broke {len(images)}."
        )
        numbers = {"late": len(images), "standing": standing}
        yield Finding(place.text, "warning" if rising else "ok", text, tuple(sorted(images)), numbers)


def _late(
    name: str, entry: Mapping[str, Any], rows: Mapping[str, AttackColumns], survivors: ImageSet
) -> tuple[str, ImageSet, int] | None:
    """The images that one attack alone broke late, and how many stood before; None where that has no meaning."""
    steps = entry.get("steps")
    one_trial = entry.get("restarts", 1) == 1 and not entry.get("targets", 0)
    own = rows.get(name, AttackColumns.of(()))
    gradients = own.backwards.any()
    if "/" in name or not isinstance(steps, int) or steps < _FEWEST_STEPS or not one_trial or not gradients:
        return None
    elsewhere = ImageSet.union(each.broken for other, each in rows.items() if other != name)
    late = own.images_where((own.success > 0) & (own.forwards > 0) & (own.queries_to_break > _LATE * steps))
    return name, late - elsewhere, len(late - elsewhere) + len(survivors)


RULE = Rule(
    name="unfinished",
    title="Attacks found no more adversarial examples in their last steps",
    level="quick",
    severity="major",
    note="the search was not finished",
    remedy="Give the attack more steps; in Linf, L2 and L1 robustkit evaluate --attack default searches further.",
    judge=judge,
)
