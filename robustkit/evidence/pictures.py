"""The pictures of a run, read from its store."""

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustkit.evidence.opening import not_ours
from robustkit.evidence.picture import Picture
from robustkit.evidence.rows import CLEAN_CELL, AttackRecord, CleanRecord, ConfidenceRecord, PictureRecord
from robustkit.evidence.store import Store

_SHAPE = re.compile(r"\d{1,9}( \d{1,9}){2}", re.ASCII)


def load_pictures(store: Store) -> list[Picture]:
    """All pictures of a store, with the classes that were predicted before and after the attack, with confidences."""
    clean = {(row.model, row.sample): row for row in _pictured_images(store)}
    attacked = {(row.model, row.norm, row.eps_text, row.attack, row.sample): row for row in _pictured_rows(store)}
    confidences = {
        (row.model, row.norm, row.eps_text, row.attack, row.sample): row.probability
        for row in store.rows(ConfidenceRecord)
    }
    pictures, images = [], dict[bytes, bytes]()
    for record in store.every(PictureRecord):
        key = record.model, record.norm, record.eps_text, record.attack, record.sample
        before, after = clean.get((record.model, record.sample)), attacked.get(key)
        # Most attacks have pictures of the same images, which are kept once.
        x, x_adv = _pixels(record, images.setdefault(record.x, record.x)), _pixels(record, record.x_adv)
        if before is None or after is None or x is None or x_adv is None:
            raise not_ours(store.folder, f"its example of image {record.sample} does not fit")
        confident = (confidences.get(one) for one in ((record.model, *CLEAN_CELL, record.sample), key))
        pictures.append(Picture(*key, before.label, before.pred, after.adv_pred, x, x_adv, *confident))
    return pictures


def _pictured_images(store: Store) -> list[CleanRecord]:
    """The clean images of which there are pictures."""
    rows = "SELECT DISTINCT model, sample FROM picture"
    query = f"SELECT model, sample, label, pred, '' FROM ({rows}) CROSS JOIN clean USING (model, sample)"
    return store.records(CleanRecord, store.read(query))


def _pictured_rows(store: Store) -> list[AttackRecord]:
    """The attacked images of which there are pictures."""
    key = "model, norm, eps_text, attack, sample"
    # CROSS: SQLite is to begin with the few pictures, and not to look for one of each row.
    return store.records(AttackRecord, store.read(f"SELECT attacked.* FROM picture CROSS JOIN attacked USING ({key})"))


def _pixels(record: PictureRecord, data: bytes) -> NDArray[np.floating[Any]] | None:
    """The pixels `[C, H, W]`; None if they do not have the shape that the record says, or are not finite."""
    if not _SHAPE.fullmatch(record.shape):
        return None
    shape = [int(side) for side in record.shape.split()]
    count = math.prod(shape)
    if not count or len(data) not in (4 * count, 8 * count):
        return None
    # A witness of a float64 model is stored in float64: rounded, it would leave the ball.
    pixels: NDArray[np.floating[Any]] = np.frombuffer(data, dtype=np.float64 if len(data) == 8 * count else np.float32)
    return pixels.reshape(shape) if np.isfinite(pixels).all() else None
