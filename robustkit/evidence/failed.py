"""Images that ended every process which worked on them: they have no verdict, and count as neither robust nor broken.

In the tables they are among the n images and not among the correct ones, and each interval reaches from all of them
wrong to all of them right.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from robustkit.evidence.audit import AUDIT
from robustkit.evidence.consistency import image_list
from robustkit.evidence.parts import Part
from robustkit.evidence.rows import NO_VERDICT, FailedRecord
from robustkit.evidence.single_draws import DRAW_COLUMN, RESULT_EXTRAS
from robustkit.evidence.stopped import share_of
from robustkit.statistics.intervals import mean_of_shares

ERRORS: Final = "errors"  # column of the results
Failed = Mapping[int, FailedRecord]  # by image


def with_errors(
    rows: Iterable[Mapping[str, Any]], identity: Mapping[str, Any], failed: Failed, waiting: int
) -> list[dict[str, Any]]:
    """The result rows of one model, with the images that have no verdict.

    Args:
        rows: of the model; about its other images.
        identity: of the run.
        failed: images without a verdict.
        waiting: images of the run that have no clean prediction yet.
    """
    if not failed:
        return [dict(row) for row in rows]
    return [dict(row) if row["role"] == AUDIT else _with_errors(row, identity, len(failed), waiting) for row in rows]


def error_parts(names: Iterable[str], failed: Failed) -> list[Part]:
    """The rows of the images without a verdict in the samples, for each of some attacks at one threat."""
    if not failed:
        return []
    images = np.array(sorted(failed), np.int64)
    labels = np.array([failed[number].label for number in images.tolist()], np.int64)
    unknown = np.full(len(images), -1, np.int64)
    return [
        {"attack": name, "sample": images, "label": labels, "clean_pred": unknown, "verdict": NO_VERDICT}
        for name in names
    ]


def error_warnings(model: str, failed: Failed) -> list[str]:
    """A sentence that names the images; none if there are none."""
    if not failed:
        return []
    ends = ", ".join(dict.fromkeys(row.reason for row in failed.values()))
    return [
        f"{model}: {image_list(failed)} ended every process that worked on {'them' if len(failed) > 1 else 'it'} "
        f"({ends}) and {'have' if len(failed) > 1 else 'has'} no verdict: counted as not correct, with intervals that "
        "reach up to all of them correct."
    ]


def _with_errors(row: Mapping[str, Any], identity: Mapping[str, Any], errors: int, waiting: int) -> dict[str, Any]:
    n, correct = row["n"] + errors, row["correct"]
    share = share_of(identity, correct, n)
    least = share_of(identity, max(0, correct - (row["undecided"] - waiting)), n)
    most = share_of(identity, correct + errors, n)
    shares = {"n": n, "accuracy": share.value, "ci_low": least.low, "ci_high": most.high, ERRORS: errors}
    return {**row, **shares, **_draws_with_errors(row, errors)}


def _draws_with_errors(row: Mapping[str, Any], errors: int) -> dict[str, float]:
    """The columns about single draws, none of which is right on an image without a verdict; empty without them."""
    if not row["n"] or math.isnan(row.get(DRAW_COLUMN, math.nan)):
        return {}
    right, n = row[DRAW_COLUMN] * row["n"], row["n"] + errors
    share, most = mean_of_shares(right, n), mean_of_shares(min(right + errors, n), n)
    return dict(zip(RESULT_EXTRAS, (share.value, share.low, most.high), strict=True))


def of_other_images(rows: Mapping[int, Any], failed: Failed) -> dict[int, Any]:
    """Rows by image, without the images that have no verdict."""
    return {number: row for number, row in rows.items() if number not in failed}
