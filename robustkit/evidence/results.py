"""Rows of `Run.results`: counts of images, the accuracy with its interval, and the passes that were spent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from robustkit.evidence.audit import AUDIT, Audit
from robustkit.evidence.certificates import abstained_images, certificate_passes
from robustkit.evidence.rows import AttackRecord, CleanRecord
from robustkit.evidence.single_draws import SingleDraws, clean_extras
from robustkit.statistics.intervals import proportion, upper_bound

# Methods of the interval of an audit.
ONE_SIDED: Final = "clopper-pearson one-sided"
EXACT: Final = "exact"  # all survivors were audited


def clean_row(
    clean: Mapping[int, CleanRecord],
    smoothing: Mapping[str, Any] | None,
    waiting: int,
    draws: SingleDraws | None = None,
) -> dict[str, Any]:
    """The row of a model without an attack.

    Args:
        clean: the clean images.
        smoothing: None unless the model is smoothed.
        waiting: images of the run that have no prediction yet.
        draws: None unless the model is randomized.
    """
    correct = sum(row.pred == row.label for row in clean.values())
    forwards = len(clean) * certificate_passes(smoothing) if draws is None else draws.clean_forwards
    never_abstains = smoothing is None and draws is None
    return {
        "norm": "-", "eps": 0.0, "eps_text": "0",
        **result_row("clean", "clean", len(clean), correct, []), "forwards": forwards, "undecided": waiting,
        "abstained": None if never_abstains else abstained_images(clean),
        **({} if draws is None else clean_extras(draws)),
    }  # fmt: skip


def threat_rows(
    clean: Mapping[int, CleanRecord],
    groups: Mapping[str, Sequence[str]],
    records: Mapping[str, Sequence[AttackRecord]],
    waiting: int,
    audit: Audit | None = None,
) -> list[dict[str, Any]]:
    """One row for each attack, ensemble member, ensemble and audit at one threat, and one for the worst case over all.

    Args:
        clean: the clean images.
        groups: for each ensemble its members, for each other attack its own name; without the audit.
        records: rows of each attack.
        waiting: images of the run that have no clean prediction yet.
        audit: None unless the model is audited.
    """
    n, correct = len(clean), {number for number, row in clean.items() if row.pred == row.label}
    robust, unattacked = set(correct), set[int]()
    rows, everything = [], []
    for column, names in groups.items():
        is_ensemble = names != [column]
        own = [record for name in names for record in records[name]]
        standing = correct - {record.sample for record in own if record.success}
        left, left_out = set(correct), set[int]()
        for name in names:
            left -= {record.sample for record in records[name] if record.success}
            open_here = standing - {record.sample for record in records[name]}
            left_out |= open_here
            role = "member" if is_ensemble else "attack"
            rows.append(result_row(name, role, n, len(left), records[name], len(open_here), waiting))
        if is_ensemble:
            rows.append(result_row(column, "ensemble", n, len(left), combined(own), len(left_out), waiting))
        robust &= left
        unattacked |= left_out
        everything += own
    if audit is not None:
        rows.append(audit_row(audit, settled=not (unattacked & robust or waiting)))
        robust -= audit.broken
        unattacked |= audit.undecided
        everything += audit.all_records
    rest = len(unattacked & robust)
    rows.append(result_row("worst-case", "worst-case", n, len(robust), combined(everything), rest, waiting))
    return rows


def audit_row(audit: Audit, *, settled: bool) -> dict[str, Any]:
    """The row about the drawn images: how many of them the audit left, with a one-sided interval.

    Args:
        audit: of one model at one threat.
        settled: whether all attacks have finished, so that the survivors are known.
    """
    own = [record for record in combined(audit.all_records) if record.sample in audit.drawn]
    n, correct = len(audit.drawn), len(audit.drawn - audit.broken)
    row = result_row(AUDIT, AUDIT, n, correct, own, len(audit.undecided))
    if audit.undecided or not settled:
        return row | {"ci_method": "unfinished"}
    if n == audit.survivors:
        return row | {"ci_low": row["accuracy"], "ci_high": row["accuracy"], "ci_method": EXACT}
    return row | {"ci_low": 1 - upper_bound(n - correct, n), "ci_high": 1.0, "ci_method": ONE_SIDED}


def combined(records: Sequence[AttackRecord]) -> list[AttackRecord]:
    """One row per image for several attacks together: its first success, else its last row, with all passes added."""
    by_image: dict[int, list[AttackRecord]] = {}
    for record in records:
        by_image.setdefault(record.sample, []).append(record)
    return [own[0] if len(own) == 1 else _merged(own) for own in by_image.values()]


def _merged(records: Sequence[AttackRecord]) -> AttackRecord:
    return replace(
        next((record for record in records if record.success), records[-1]),
        forwards=sum(record.forwards for record in records),
        backwards=sum(record.backwards for record in records),
    )


def result_row(
    attack: str, role: str, n: int, correct: int, records: Sequence[AttackRecord], unattacked: int = 0, waiting: int = 0
) -> dict[str, Any]:
    """The counts of one attack with its accuracy.

    Args:
        attack: its name.
        role: as in `Run.results`.
        n: images.
        correct: how many of them are classified correctly under this attack.
        records: one row for each image that was attacked.
        unattacked: how many of the `correct` images the attack has not reached yet. It may break all or none of them,
            so the interval begins where they would be broken.
        waiting: further images of the run, which have no clean prediction yet.
    """
    share, least = proportion(correct, n), proportion(correct - unattacked, n)
    broken = sum(record.success for record in records)
    attacked = sum(record.success or record.forwards > 0 for record in records)  # others were passed over
    return {
        "attack": attack, "role": role, "n": n, "correct": correct, "accuracy": share.value, "ci_low": least.low,
        "ci_high": share.high, "ci_method": "unfinished" if unattacked else share.method, "attacked": attacked,
        "broken": broken, "success_rate": broken / attacked if attacked else float("nan"),
        "forwards": sum(record.forwards for record in records),
        "backwards": sum(record.backwards for record in records),
        "undecided": unattacked + waiting,
    }  # fmt: skip
