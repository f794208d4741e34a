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
_LAST: Final = (1 << 63) - 1  # no whole number in SQLite is larger
_CHUNK: Final = 1 << 12  # rows that are in memory as objects


Cell = tuple[str, str, str]  # norm, eps_text and attack


def attacked_cells(store: Store, model: str) -> list[Cell]:
    """The norms, radii and attacks of which there are rows about a model.

    Raises:
        UserError: a row cannot be one of ours.
    """
    key, past = "model, norm, eps_text, attack", ("", "", "")
    later = f"model = ? AND (norm, eps_text, attack, sample) > (?, ?, ?, {_LAST})"
    cells = []
    # From cell to cell by the index, past the last image of each, without reading every row.
    while found := store.read(f"SELECT {key} FROM attacked WHERE {later} ORDER BY {key} LIMIT 1", model, *past):
        check_values(AttackRecord, found, store.folder)
        cell = found[0][1:]
        if cell <= past:
            raise not_ours(store.folder, "the rows of attacks are in no order")
        cells.append(past := cell)
    return cells


def attack_parts(store: Store, model: str, cell: Cell) -> Iterator[AttackColumns]:
    """The attacked images of one model in one cell, ascending by image, some at a time.

    Raises:
        UserError: a row cannot be one of ours.
    """
    query = f"SELECT {', '.join(_NAMES)} FROM attacked WHERE {_CELL} ORDER BY sample"
    for rows in store.chunks(query, model, *cell, size=_CHUNK):
        part = AttackColumns.valid(rows)
        if part is None:
            check_values(AttackRecord, rows, store.folder, _NAMES)
            part = AttackColumns.of(rows)
        if (part.success < 0).any() or (part.success > 1).any():
            raise not_ours(store.folder, "an attack neither succeeded nor failed")
        yield part


def attack_columns(store: Store, model: str) -> dict[Cell, AttackColumns]:
    """All attacked images of one model, by norm, eps_text and attack.

    Raises:
        UserError: a row cannot be one of ours.
    """
    return {cell: _together(store, attack_parts(store, model, cell)) for cell in attacked_cells(store, model)}


def _together(store: Store, parts: Iterator[AttackColumns]) -> AttackColumns:
    found = AttackColumns.joined(part.narrow() for part in parts)
    if (np.diff(found.sample) <= 0).any():
        raise not_ours(store.folder, "an image stands twice under one attack")
    return found
