"""The intervals of a run that was free to stop when they were narrow enough."""

from collections.abc import Iterable, Mapping
from typing import Any

from robustkit.evidence.audit import AUDIT
from robustkit.statistics.confidence_sequence import sequence
from robustkit.statistics.intervals import Proportion, proportion


def share_of(identity: Mapping[str, Any], correct: int, n: int) -> Proportion:
    """A share of a run's images, with the interval that its way of stopping asks for.

    Args:
        identity: of the run.
        correct: images of the n.
        n: the first images of the run.
    """
    asked = identity.get("precision")
    return proportion(correct, n) if asked is None or n > asked["images"] else sequence(correct, n, asked["images"])


def with_sequences(
    rows: Iterable[Mapping[str, Any]], identity: Mapping[str, Any], waiting: int
) -> list[dict[str, Any]]:
    """The result rows of one model, with confidence sequences as intervals if the run has a precision.

    Args:
        rows: of one model.
        identity: of the run.
        waiting: images of the run that have no clean prediction yet.
    """
    if "precision" not in identity:
        return [dict(row) for row in rows]
    return [dict(row) if row["role"] == AUDIT else {**row, **_interval(row, identity, waiting)} for row in rows]


def _interval(row: Mapping[str, Any], identity: Mapping[str, Any], waiting: int) -> dict[str, Any]:
    unattacked = row["undecided"] - waiting
    share = share_of(identity, row["correct"], row["n"])
    least = share_of(identity, row["correct"] - unattacked, row["n"])
    return {"ci_low": least.low, "ci_high": share.high, "ci_method": row["ci_method"] if unattacked else share.method}
