"""Rows of `Run.samples`: the verdict of each attack on each image."""

from collections.abc import Mapping, Sequence
from typing import Any

from robustkit.evidence.audit import AUDIT, Audit
from robustkit.evidence.results import combined
from robustkit.evidence.rows import AttackRecord, CleanRecord
from robustkit.evidence.run import SAMPLE_COLUMNS


def sample_rows(
    clean: Mapping[int, CleanRecord],
    column: str,
    names: Sequence[str],
    records: Mapping[str, Sequence[AttackRecord]],
) -> list[dict[str, Any]]:
    """The rows of an attack, or of an ensemble after those of its members.

    Args:
        clean: the clean images.
        column: name of the attack or ensemble.
        names: the ensemble's members, or the attack's own name.
        records: rows of each attack.
    """
    rows = []
    members = [(name, records[name]) for name in names if name != column]
    together = combined([record for name in names for record in records[name]])
    unfinished = set().union(*(set(clean) - {record.sample for record in records[name]} for name in names))
    for name, own in [*members, (column, together)]:
        by_image = {record.sample: record for record in own}
        for number in sorted(clean):
            record = by_image.get(number)
            if record is None and (name != column or clean[number].pred == clean[number].label):
                continue  # this member did not attack the image, or the run has not reached it
            if name == column and record is not None and not record.success and number in unfinished:
                continue  # later members may break it
            rows.append(_sample_row(name, clean[number], record))
    return rows


def audit_samples(clean: Mapping[int, CleanRecord], audit: Audit) -> list[dict[str, Any]]:
    """The rows of an audit: one for each image that has a verdict."""
    together = {record.sample: record for record in combined(audit.all_records)}
    return [_sample_row(AUDIT, clean[number], together[number]) for number in sorted(together.keys() - audit.undecided)]


def _sample_row(attack: str, clean: CleanRecord, record: AttackRecord | None) -> dict[str, Any]:
    measured = {} if record is None else {key: value for key, value in vars(record).items() if key in SAMPLE_COLUMNS}
    verdict = "clean-wrong" if record is None else "broken" if record.success else "robust"
    return {**measured, "attack": attack, "sample": clean.sample, "label": clean.label, "clean_pred": clean.pred,
            "verdict": verdict}  # fmt: skip
