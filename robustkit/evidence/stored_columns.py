"""The attacked images of a model, read from its store as columns."""

from collections.abc import Iterator
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
    cells = list(_cells(store, model))
    return {(norm, eps_text, attack): _cell(store, model, norm, eps_text, attack) for norm, eps_text, attack in cells}


def _cells(store: Store, model: str) -> Iterator[tuple[str, str, str]]:
    """Norm, eps_text and attack of the attacked images of a model, ascending, without reading every row."""
    key, past = "model, norm, eps_text, attack", ("", "", "")
    later = "model = ? AND (norm, eps_text, attack) > (?, ?, ?)"
    while found := store.read(f"SELECT {key} FROM attacked WHERE {later} ORDER BY {key} LIMIT 1", model, *past):
        check_values(AttackRecord, found, store.folder)
        cell = found[0][1:]
        if cell <= past:
            raise not_ours(store.folder, "the rows of attacks are in no order")
        yield (past := cell)


def _cell(store: Store, model: str, norm: str, eps_text: str, attack: str) -> AttackColumns:
    query = f"SELECT {', '.join(_NAMES)} FROM attacked WHERE {_CELL} ORDER BY sample"
    parts = []
    for rows in store.chunks(query, model, norm, eps_text, attack, size=_CHUNK):
        part = AttackColumns.valid(rows)
        if part is None:
            check_values(AttackRecord, rows, store.folder, _NAMES)
        parts.append((AttackColumns.of(rows) if part is None else part).narrow())
    found = AttackColumns.joined(parts)
    if (found.success < 0).any() or (found.success > 1).any():
        raise not_ours(store.folder, "an attack neither succeeded nor failed")
    if (np.diff(found.sample) <= 0).any():
        raise not_ours(store.folder, "an image stands twice under one attack")
    return found
