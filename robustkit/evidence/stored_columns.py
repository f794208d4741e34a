"""The attacked images of a model, read from its store as columns."""

from dataclasses import fields
from typing import Final

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.evidence.opening import not_ours
from robustkit.evidence.rows import AttackRecord
from robustkit.evidence.store import Store
from robustkit.evidence.valid_rows import check_values

_NAMES: Final = [field.name for field in fields(AttackColumns)]
_CELL: Final = "model = ? AND norm = ? AND eps_text = ? AND attack = ?"
_CHUNK: Final = 1 << 12  # rows that are in memory as objects


def attack_columns(store: Store, model: str) -> dict[tuple[str, str, str], AttackColumns]:
    """All attacked images of one model, by norm, eps_text and attack.

    Raises:
        UserError: a row cannot be one of ours.
    """
    cells = store.read("SELECT DISTINCT model, norm, eps_text, attack FROM attacked WHERE model = ?", model)
    check_values(AttackRecord, cells, store.folder)
    return {(norm, eps_text, attack): _cell(store, *cell) for cell in cells for _, norm, eps_text, attack in [cell]}


def _cell(store: Store, model: str, norm: str, eps_text: str, attack: str) -> AttackColumns:
    query = f"SELECT {', '.join(_NAMES)} FROM attacked WHERE {_CELL} ORDER BY sample"
    parts = []
    for rows in store.chunks(query, model, norm, eps_text, attack, size=_CHUNK):
        part = AttackColumns.valid(rows)
        if part is None:
            check_values(AttackRecord, rows, store.folder, _NAMES)
        parts.append(AttackColumns.of(rows) if part is None else part)
    found = AttackColumns.joined(parts)
    if (found.success < 0).any() or (found.success > 1).any():
        raise not_ours(store.folder, "an attack neither succeeded nor failed")
    if (np.diff(found.sample) <= 0).any():
        raise not_ours(store.folder, "an image stands twice under one attack")
    return found.narrow()
