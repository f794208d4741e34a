"""The pictures of a run, read from its store."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robustkit.evidence.run import Picture
from robustkit.evidence.store import CleanRecord, PictureRecord, Store


def load_pictures(store: Store) -> list[Picture]:
    """All pictures of a store, with the classes that were predicted before and after the attack."""
    clean: dict[str, dict[int, CleanRecord]] = {}
    attacked = {(row.model, row.norm, row.eps_text, row.attack, row.sample): row for row in store.attack_records()}
    pictures = []
    for record in store.picture_records():
        key = record.model, record.norm, record.eps_text, record.attack, record.sample
        before = clean.setdefault(record.model, store.clean(record.model))[record.sample]
        pictures.append(
            Picture(*key, before.label, before.pred, attacked[key].adv_pred, _pixels(record, record.x),
                    _pixels(record, record.x_adv))
        )  # fmt: skip
    return pictures


def _pixels(record: PictureRecord, data: bytes) -> NDArray[np.floating[Any]]:
    shape = [int(side) for side in record.shape.split()]
    # A witness of a float64 model is stored in float64: rounded, it would leave the ball.
    is_double = len(data) == 8 * math.prod(shape)
    flat: NDArray[np.floating[Any]] = np.frombuffer(data, dtype=np.float64 if is_double else np.float32)
    return flat.reshape(shape)
