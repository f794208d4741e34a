"""Conditions of `--fail-under` that can never be judged, refused before hours of work."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from robustkit.errors import UserError

if TYPE_CHECKING:
    from robustkit.evaluation.plan import Plan


def check_conditions(texts: Sequence[str]) -> None:
    """Refuse what is no condition."""
    from robustkit.comparison.conditions import condition

    for text in texts:
        condition(text)


def check_measured(texts: Sequence[str], planned: "Plan") -> None:
    """Refuse a condition on a threat that the run will not have: it would be kept as declared, and never be judged."""
    from robustkit.comparison.conditions import Condition, condition
    from robustkit.comparison.contestants import CLEAN
    from robustkit.evidence.union import UNION

    threats = {(each.norm, each.eps) for each in planned.threats}
    for asked in map(condition, texts):
        if not isinstance(asked, Condition) or asked.threat.norm in (CLEAN.norm, UNION):
            continue
        if (asked.threat.norm, asked.threat.eps) not in threats:
            run = ", ".join(f"{each.norm}@{each.eps_text}" for each in planned.threats) or "clean images"
            raise UserError(
                f"The run would have no result for {asked.text!r}; it is about {run}. Add that norm and radius."
            )
