"""Stored predictions for corrupted images, asked for again from a model that somebody brings.

The pictures are made or read again. One that has not the stored hash was made by other libraries or files, and says
nothing about the evidence.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from robustkit.classifier.classifier import Classifier
from robustkit.classifier.sanity_checks import checked_batch
from robustkit.classifier.session import Session
from robustkit.common_corruptions.choice import corruption_suite
from robustkit.common_corruptions.suite import GENERATED, CorruptionLevel, CorruptionSuite, hash_of, images_of
from robustkit.data import Dataset
from robustkit.evaluation.rejudging import predictions
from robustkit.evidence.rows import CorruptedRecord
from robustkit.evidence.store import Store

_AT_ONCE = 64


@dataclass(frozen=True)
class CorruptedRejudged:
    """What a given model says about the corrupted images of one model of a run."""

    model: str
    pictures: int  # that were asked again
    wrong: tuple[int, ...]  # images with a stored prediction that is another one
    other_pictures: int  # that have not the stored hash


def suite_of(
    identity: Mapping[str, Any], data: Dataset, published: Sequence[str]
) -> CorruptionSuite | None:  # fmt: skip
    """The corruptions of a run; None where they are published and no folder is named.

    Args:
        identity: of the run, with corruptions.
        data: its clean images.
        published: the folder of published corruptions, or "published"; empty for generated ones.

    Raises:
        UserError: the folder cannot be read.
    """
    described = identity["corruptions"]
    if described["source"] == GENERATED:
        return corruption_suite(described["names"], data, identity["seed"], described["severities"])
    return corruption_suite([*published, *described["names"]], data, identity["seed"]) if published else None


def rejudged_corrupted(
    store: Store, name: str, classifier: Classifier, suite: CorruptionSuite, data: Dataset, ids: Sequence[int]
) -> CorruptedRejudged:
    """Ask a model for its predictions at corrupted images.

    Args:
        store: the evidence.
        name: of the run's model.
        classifier: the model that was given.
        suite: the run's corruptions.
        data: of the run.
        ids: numbers of the run's images.
    """
    rows: dict[CorruptionLevel, dict[int, CorruptedRecord]] = {}
    for row in store.rows(CorruptedRecord, name):
        rows.setdefault(CorruptionLevel(row.corruption, row.severity), {})[row.sample] = row
    asked, others, wrong = 0, 0, set[int]()
    given = classifier.input_format()
    images, _ = checked_batch(data, ids[:_AT_ONCE])
    with classifier.session(given.moved(images), store.manifest()["identity"]["seed"]) as session:
        for start in range(0, len(ids), _AT_ONCE):
            part = ids[start : start + _AT_ONCE]
            clean, _ = data.batch(part)
            for cell in suite.cells:
                stored = [rows.get(cell, {}).get(number) for number in part]
                pictures = suite.pictures(cell, part, clean)
                same = [row is not None and hash_of(made) == row.pixels
                        for row, made in zip(stored, pictures, strict=True)]  # fmt: skip
                others += sum(row is not None for row in stored) - sum(same)
                kept = [row for row, equal in zip(stored, same, strict=True) if equal and row is not None]
                asked += len(kept)
                if kept:
                    wrong |= _wrong(session, kept, pictures[same])
    return CorruptedRejudged(name, asked, tuple(sorted(wrong)), others)


def _wrong(session: Session, rows: Sequence[CorruptedRecord], pictures: Any) -> set[int]:
    labels = predictions(session, session.input.moved(images_of(pictures)), [row.pred for row in rows])
    return {row.sample for row, label in zip(rows, labels, strict=True) if label != row.pred}
