"""The images that a model classifies correctly under every threat of a run at once.

An attacker who may choose the kind of perturbation for each image breaks an image that any threat breaks. The union
row is one minus the risk R_max of Tramer & Boneh 2019, arXiv:1904.13000. (Their R_avg, the mean of the risks of the
threats, follows from the rows of the threats.)

The balls of one norm are nested, so the union is over the largest radius of each norm, and a run with one norm has
none. The radius "minimum" says nothing about a ball and is left out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.image_set import ImageSet
from robustkit.evidence.audit import Audit
from robustkit.evidence.clean_columns import CleanColumns
from robustkit.evidence.results import result_row
from robustkit.primitives.threat import is_minimum, radius_under

UNION: Final = "union"  # norm and role of the row
_AND: Final = " + "


class ThreatEvidence(NamedTuple):
    """All rows at one threat."""

    records: Mapping[str, AttackColumns]  # by attack, without the audit
    audit: Audit | None


def members(threats: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """The largest radius of each norm, in the order of the run; empty if there are fewer than two norms.

    Args:
        threats: norms and radii, as in the manifest.
    """
    largest: dict[str, str] = {}
    for norm, eps_text in threats:
        if not is_minimum(eps_text) and (
            norm not in largest or radius_under(norm, eps_text) > radius_under(norm, largest[norm])
        ):
            largest[norm] = eps_text
    return list(largest.items()) if len(largest) > 1 else []


def described(parts: Sequence[tuple[str, str]]) -> str:
    """The threats of a union as one text, such as "Linf 8/255 + L2 0.5"."""
    return _AND.join(f"{norm} {eps_text}" for norm, eps_text in parts)


def union_row(
    clean: CleanColumns, threats: Sequence[ThreatEvidence], parts: Sequence[tuple[str, str]], waiting: int
) -> dict[str, Any]:
    """The row of one model.

    Args:
        clean: the clean images.
        threats: of all norms and radii but "minimum".
        parts: from `members`.
        waiting: images of the run that have no clean prediction yet.
    """
    attacks = [rows for threat in threats for rows in threat.records.values()]
    audits = [threat.audit for threat in threats if threat.audit is not None]
    own = [*attacks, *(rows for audit in audits for rows in audit.records.values())]
    robust = clean.correct - ImageSet.union(rows.broken for rows in own)
    missing = [*(robust - rows.images for rows in attacks), *(audit.undecided & robust for audit in audits)]
    undecided = ImageSet.union(missing)
    row = result_row("worst-case", UNION, len(clean), len(robust), own, len(undecided), waiting)
    return {"norm": UNION, "eps": float("nan"), "eps_text": described(parts), **row}
