"""The parts of `Run.samples`: the verdicts of one attack at one threat, by image."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from robustkit.checks.attack_columns import AttackColumns
from robustkit.evidence.audit import AUDIT, Audit
from robustkit.evidence.clean_columns import CleanColumns
from robustkit.evidence.parts import Gaps, Part, Words
from robustkit.evidence.results import combined

_VERDICTS: Final = ("robust", "broken", "clean-wrong")
_BROKEN: Final = 1
_CLEAN_WRONG: Final = 2
_MEASURED: Final = (
    "adv_pred", "queries_to_break", "restart", "target", "linf", "l2", "l1", "l0", "forwards", "backwards",
)  # fmt: skip
_OF_BROKEN: Final = ("queries_to_break", "restart", "target")  # about the trial that broke the image


def sample_parts(
    clean: CleanColumns, column: str, names: Sequence[str], records: Mapping[str, AttackColumns]
) -> list[Part]:
    """The rows of an attack, or of an ensemble after those of its members.

    Args:
        clean: the clean images.
        column: name of the attack or ensemble.
        names: the ensemble's members, or the attack's own name.
        records: rows of each attack.
    """
    own = {name: clean.rows_of(records[name]) for name in names}
    parts = [_part(name, clean, records[name], own[name], own[name] >= 0) for name in names if name != column]
    single = len(own) == 1
    together = records[names[0]] if single else combined(AttackColumns.joined(records[name] for name in names))
    places = own[names[0]] if single else clean.rows_of(together)
    known = places >= 0
    broken = np.zeros(len(clean), bool)
    broken[known] = together.success[places[known]] > 0
    unfinished = np.any([each < 0 for each in own.values()], axis=0)
    # Later members may break an image that some have not reached.
    settled = np.where(known, broken | ~unfinished, ~clean.is_right)
    return [*parts, _part(column, clean, together, places, settled)]


def audit_part(clean: CleanColumns, audit: Audit) -> Part:
    """The rows of an audit: one for each image that has a verdict."""
    together = combined(audit.all_records)
    judged = together.images - audit.undecided
    return _part(AUDIT, clean, together, clean.rows_of(together), np.isin(clean.sample, judged.array))


def _part(
    attack: str, clean: CleanColumns, attacked: AttackColumns, places: NDArray[np.int64], shown: NDArray[np.bool_]
) -> Part:
    """The rows of the images that are shown; those that were not attacked are wrong already."""
    images, places = (clean, places) if shown.all() else (clean.where(shown), places[shown])
    known = places >= 0
    rows = places[known]
    found = attacked if len(rows) == len(attacked) else attacked.rows_where(rows)  # both ascend by image
    outcome = np.full(len(places), _CLEAN_WRONG, np.int8)
    outcome[known] = found.success
    broken = outcome == _BROKEN
    errors = broken[known]

    def column(name: str) -> Gaps:
        values = getattr(found, name)
        return Gaps(values[errors], broken) if name in _OF_BROKEN else Gaps(values, known)

    return {
        "attack": attack, "sample": images.sample, "label": images.label, "clean_pred": images.pred,
        "verdict": Words(outcome, _VERDICTS), **{name: column(name) for name in _MEASURED},
    }  # fmt: skip
