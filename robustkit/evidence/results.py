"""Rows of `Run.results`: counts of images, the accuracy with its interval, and the passes that were spent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.image_set import ImageSet
from robustkit.evidence.audit import AUDIT, Audit
from robustkit.evidence.certificates import abstained_images, certificate_passes
from robustkit.evidence.clean_columns import CleanColumns
from robustkit.evidence.single_draws import SingleDraws, clean_extras
from robustkit.statistics.intervals import proportion, upper_bound

# Methods of the interval of an audit.
ONE_SIDED: Final = "clopper-pearson one-sided"
EXACT: Final = "exact"  # all survivors were audited


def clean_row(
    clean: CleanColumns,
    smoothing: Mapping[str, Any] | None,
    waiting: int,
    draws: SingleDraws | None = None,
    *,
    rejects: bool = False,
) -> dict[str, Any]:
    """The row of a model without an attack.

    Args:
        clean: the clean images.
        smoothing: None unless the model is smoothed.
        waiting: images of the run that have no prediction yet.
        draws: None unless the model is randomized.
        rejects: whether the model may reject images.
    """
    correct = len(clean.correct)
    forwards = len(clean) * certificate_passes(smoothing) if draws is None else draws.clean_forwards
    always_answers = smoothing is None and draws is None and not rejects
    return {
        "norm": "-", "eps": 0.0, "eps_text": "0",
        **result_row("clean", "clean", len(clean), correct), "forwards": forwards, "undecided": waiting,
        "abstained": None if always_answers else abstained_images(clean),
        **({} if draws is None else clean_extras(draws)),
    }  # fmt: skip


def threat_rows(
    clean: CleanColumns,
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
    n, correct = len(clean), clean.correct
    robust, unattacked = correct, ImageSet()
    rows: list[dict[str, Any]] = []
    everything: list[AttackColumns] = []
    for column, names in groups.items():
        is_ensemble = names != [column]
        own = [records[name] for name in names]
        standing = correct - ImageSet.union(each.broken for each in own)
        left, left_out = correct, ImageSet()
        for name in names:
            left = left - records[name].broken
            open_here = standing - records[name].images
            left_out = left_out | open_here
            role = "member" if is_ensemble else "attack"
            rows.append(result_row(name, role, n, len(left), [records[name]], len(open_here), waiting))
        if is_ensemble:
            rows.append(result_row(column, "ensemble", n, len(left), own, len(left_out), waiting))
        robust = robust & left
        unattacked = unattacked | left_out
        everything += own
    if audit is not None:
        rows.append(audit_row(audit, settled=not (unattacked & robust or waiting)))
        robust = robust - audit.broken
        unattacked = unattacked | audit.undecided
        everything += audit.records.values()
    rest = len(unattacked & robust)
    rows.append(result_row("worst-case", "worst-case", n, len(robust), everything, rest, waiting))
    return rows


def audit_row(audit: Audit, *, settled: bool) -> dict[str, Any]:
    """The row about the drawn images: how many of them the audit left, with a one-sided interval.

    Args:
        audit: of one model at one threat.
        settled: whether all attacks have finished, so that the survivors are known.
    """
    own = [rows.of_images(audit.drawn) for rows in audit.records.values()]
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
    attack: str, role: str, n: int, correct: int, rows: Sequence[AttackColumns] = (), unattacked: int = 0,
    waiting: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """The counts of one attack with its accuracy.

    Args:
        attack: its name.
        role: as in `Run.results`.
        n: images.
        correct: how many of them are classified correctly under this attack.
        rows: of each attack that belongs to it.
        unattacked: how many of the `correct` images the attack has not reached yet. It may break all or none of them,
            so the interval begins where they would be broken.
        waiting: further images of the run, which have no clean prediction yet.
    """
    share, least = proportion(correct, n), proportion(correct - unattacked, n)
    broken = len(ImageSet.union(each.broken for each in rows))
    # The others were passed over.
    attacked = len(ImageSet.union(each.images_where((each.success > 0) | (each.forwards > 0)) for each in rows))
    return {
        "attack": attack, "role": role, "n": n, "correct": correct, "accuracy": share.value, "ci_low": least.low,
        "ci_high": share.high, "ci_method": "unfinished" if unattacked else share.method, "attacked": attacked,
        "broken": broken, "success_rate": broken / attacked if attacked else float("nan"),
        "forwards": sum(int(each.forwards.sum()) for each in rows),
        "backwards": sum(int(each.backwards.sum()) for each in rows),
        "undecided": unattacked + waiting,
    }  # fmt: skip
