"""The parts of `Run.samples`: the verdicts of one attack at one threat, by image."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from robustkit.checks.attack_columns import AttackColumns
from robustkit.evidence.audit import AUDIT, Audit
from robustkit.evidence.parts import Gaps, Part, Words
from robustkit.evidence.results import combined
from robustkit.evidence.rows import CleanRecord

_VERDICTS: Final = ("robust", "broken", "clean-wrong")
_CLEAN_WRONG: Final = 2
_MEASURED: Final = ("adv_pred", "question", "restart", "target", "linf", "l2", "l1", "l0", "forwards", "backwards")


class CleanColumns(NamedTuple):
    """The clean images as columns, ascending by image."""

    sample: NDArray[np.int64]  # [n]
    label: NDArray[np.int64]
    pred: NDArray[np.int64]

    @classmethod
    def of(cls, clean: Mapping[int, CleanRecord]) -> Self:
        """From the rows by image."""
        rows = [(number, row.label, row.pred) for number, row in sorted(clean.items())]
        return cls(*np.array(rows, np.int64).reshape(-1, 3).T)

    def rows_of(self, attacked: AttackColumns) -> NDArray[np.int64]:
        """Of each clean image the number of its row, -1 for none."""
        found = np.full(len(self.sample), -1)
        found[np.searchsorted(self.sample, attacked.sample)] = np.arange(len(attacked))
        return found


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
    members = [name for name in names if name != column]
    parts = [_part(name, clean, records[name], clean.rows_of(records[name]) >= 0) for name in members]
    together = combined(AttackColumns.joined(records[name] for name in names))
    places = clean.rows_of(together)
    unfinished = np.any([clean.rows_of(records[name]) < 0 for name in names], axis=0)
    broken = np.isin(clean.sample, together.sample[together.success > 0])
    # Later members may break an image that some have not reached.
    settled = np.where(places < 0, clean.pred != clean.label, broken | ~unfinished)
    return [*parts, _part(column, clean, together, settled)]


def audit_part(clean: CleanColumns, audit: Audit) -> Part:
    """The rows of an audit: one for each image that has a verdict."""
    together = combined(audit.all_records)
    judged = together.images - audit.undecided
    return _part(AUDIT, clean, together, np.isin(clean.sample, np.fromiter(judged, np.int64)))


def _part(attack: str, clean: CleanColumns, attacked: AttackColumns, shown: NDArray[np.bool_]) -> Part:
    """The rows of the images that are shown; those that were not attacked are wrong already."""
    images = clean if shown.all() else CleanColumns(*(values[shown] for values in clean))
    places = clean.rows_of(attacked)[shown]
    known = places >= 0
    rows = places[known]
    found = attacked if len(rows) == len(attacked) else attacked.rows_where(rows)  # both ascend by image
    outcome = np.full(len(places), _CLEAN_WRONG, np.int8)
    outcome[known] = found.success
    return {
        "attack": attack, "sample": images.sample, "label": images.label, "clean_pred": images.pred,
        "verdict": Words(outcome, _VERDICTS), **{name: Gaps(getattr(found, name), known) for name in _MEASURED},
    }  # fmt: skip
