"""Rows of `Run.results`: counts of images, the accuracy with its interval, and the passes that were spent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.evidence.audit import AUDIT, Audit
from robustkit.evidence.certificates import abstained_images, certificate_passes
from robustkit.evidence.rows import CleanRecord
from robustkit.evidence.single_draws import SingleDraws, clean_extras
from robustkit.statistics.intervals import proportion, upper_bound

# Methods of the interval of an audit.
ONE_SIDED: Final = "clopper-pearson one-sided"
NONE: Final = AttackColumns.of(())
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
        **result_row("clean", "clean", len(clean), correct), "forwards": forwards, "undecided": waiting,
        "abstained": None if never_abstains else abstained_images(clean),
        **({} if draws is None else clean_extras(draws)),
    }  # fmt: skip


def threat_rows(
    clean: Mapping[int, CleanRecord],
    groups: Mapping[str, Sequence[str]],
    records: Mapping[str, AttackColumns],
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
        own = AttackColumns.joined(records[name] for name in names)
        standing = correct - own.broken
        left, left_out = set(correct), set[int]()
        for name in names:
            left -= records[name].broken
            open_here = standing - records[name].images
            left_out |= open_here
            role = "member" if is_ensemble else "attack"
            rows.append(result_row(name, role, n, len(left), records[name], len(open_here), waiting))
        if is_ensemble:
            rows.append(result_row(column, "ensemble", n, len(left), combined(own), len(left_out), waiting))
        robust &= left
        unattacked |= left_out
        everything.append(own)
    if audit is not None:
        rows.append(audit_row(audit, settled=not (unattacked & robust or waiting)))
        robust -= audit.broken
        unattacked |= audit.undecided
        everything.append(audit.all_records)
    rest = len(unattacked & robust)
    together = combined(AttackColumns.joined(everything))
    rows.append(result_row("worst-case", "worst-case", n, len(robust), together, rest, waiting))
    return rows


def audit_row(audit: Audit, *, settled: bool) -> dict[str, Any]:
    """The row about the drawn images: how many of them the audit left, with a one-sided interval.

    Args:
        audit: of one model at one threat.
        settled: whether all attacks have finished, so that the survivors are known.
    """
    own = combined(audit.all_records).of_images(audit.drawn)
    n, correct = len(audit.drawn), len(audit.drawn - audit.broken)
    row = result_row(AUDIT, AUDIT, n, correct, own, len(audit.undecided))
    if audit.undecided or not settled:
        return row | {"ci_method": "unfinished"}
    if n == audit.survivors:
        return row | {"ci_low": row["accuracy"], "ci_high": row["accuracy"], "ci_method": EXACT}
    return row | {"ci_low": 1 - upper_bound(n - correct, n), "ci_high": 1.0, "ci_method": ONE_SIDED}


def combined(rows: AttackColumns) -> AttackColumns:
    """One row per image for several attacks together: its first success, else its last row, with all passes added."""
    images, places = np.unique(rows.sample, return_inverse=True)
    chosen, forwards, backwards = (np.zeros(len(images), np.int64) for _ in range(3))
    successes = np.flatnonzero(rows.success)[::-1]
    # Where an image comes several times, the last assignment stays.
    chosen[places] = np.arange(len(rows))
    chosen[places[successes]] = successes
    np.add.at(forwards, places, rows.forwards)
    np.add.at(backwards, places, rows.backwards)
    return replace(rows.rows_where(chosen), forwards=forwards, backwards=backwards)


def result_row(
    attack: str, role: str, n: int, correct: int, rows: AttackColumns = NONE, unattacked: int = 0, waiting: int = 0
) -> dict[str, Any]:
    """The counts of one attack with its accuracy.

    Args:
        attack: its name.
        role: as in `Run.results`.
        n: images.
        correct: how many of them are classified correctly under this attack.
        rows: one for each image that was attacked.
        unattacked: how many of the `correct` images the attack has not reached yet. It may break all or none of them,
            so the interval begins where they would be broken.
        waiting: further images of the run, which have no clean prediction yet.
    """
    share, least = proportion(correct, n), proportion(correct - unattacked, n)
    broken = int(rows.success.sum())
    attacked = int(((rows.success > 0) | (rows.forwards > 0)).sum())  # others were passed over
    return {
        "attack": attack, "role": role, "n": n, "correct": correct, "accuracy": share.value, "ci_low": least.low,
        "ci_high": share.high, "ci_method": "unfinished" if unattacked else share.method, "attacked": attacked,
        "broken": broken, "success_rate": broken / attacked if attacked else float("nan"),
        "forwards": int(rows.forwards.sum()), "backwards": int(rows.backwards.sum()),
        "undecided": unattacked + waiting,
    }  # fmt: skip
