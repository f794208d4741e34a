"""The verdicts on corrupted images, read from a store. SQLite checks and compares: there may be 75 rows for each image.

All of it is empty in runs of versions that judged none.
"""

from typing import Final

from robustkit.evidence.opening import not_ours
from robustkit.evidence.rows import CorruptedRecord
from robustkit.evidence.store import Store

_VALID: Final = (
    "typeof(corruption) = 'text' AND typeof(severity) = 'integer' AND typeof(sample) = 'integer' AND sample >= 0 AND "
    "typeof(pred) = 'integer' AND pred >= -1 AND typeof(pixels) = 'integer'"
)


def corrupted_verdicts(store: Store, model: str) -> dict[tuple[str, int], dict[int, bool]]:
    """By corruption and severity: by image, whether it is right.

    Raises:
        UserError: a row cannot be one of ours.
    """
    if not store.has(CorruptedRecord):
        return {}
    if store.read(f"SELECT 1 FROM corrupted WHERE model = ? AND NOT ({_VALID}) LIMIT 1", model):
        raise not_ours(store.folder, "a row about a corrupted image holds another type")
    verdicts: dict[tuple[str, int], dict[int, bool]] = {}
    for level in store.read("SELECT DISTINCT corruption, severity FROM corrupted WHERE model = ?", model):
        rows = store.read(
            "SELECT sample, corrupted.pred = label FROM corrupted LEFT JOIN clean USING (model, sample) "
            "WHERE model = ? AND corruption = ? AND severity = ?", model, *level,
        )  # fmt: skip
        verdicts[level] = dict(rows)
    if any(None in own.values() for own in verdicts.values()):
        raise not_ours(store.folder, f"rows of {model[:40]!r} have no row of the clean image")
    return verdicts


def corrupted_images(store: Store, model: str) -> list[tuple[str, int, int, int, int, int]]:
    """Corruption, image, label, severities judged, how many of them are right, and the sum of the pictures' hashes.

    `corrupted_verdicts` has checked the rows.
    """
    if not store.has(CorruptedRecord):
        return []
    rows = store.read(
        "SELECT corruption, sample, label, COUNT(*), SUM(corrupted.pred = label), SUM(pixels) "
        "FROM corrupted JOIN clean USING (model, sample) WHERE model = ? "
        "GROUP BY corruption, sample ORDER BY corruption, sample", model,
    )  # fmt: skip
    return [tuple(row) for row in rows]


def differing_picture(store: Store) -> tuple[str, int, int] | None:
    """Corruption, severity and image of a picture that was not the same for two models; None if there is none."""
    if not store.has(CorruptedRecord):
        return None
    rows = store.read(
        "SELECT corruption, severity, sample FROM corrupted GROUP BY corruption, severity, sample "
        "HAVING MIN(pixels) <> MAX(pixels) LIMIT 1"
    )
    return tuple(rows[0]) if rows else None
