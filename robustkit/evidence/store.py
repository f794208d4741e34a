"""The evidence of a run: one SQLite file, one writer, one row per model x attack x image, committed as images finish.

Everything else (CSV, HTML, tables) is computed from it and can be computed again without a model.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

from robustkit.errors import UserError
from robustkit.evidence.manifest import checked_manifest
from robustkit.evidence.opening import FILE, errors_explained, not_ours, open_for_reading, open_for_writing
from robustkit.evidence.rows import (
    TABLE_OF,
    VALUES_OF,
    AnswerRecord,
    AttackRecord,
    CertificateRecord,
    CleanRecord,
    CorruptedRecord,
    DrawRecord,
    FailedRecord,
    NearnessRecord,
    PictureRecord,
    R,
    Row,
)
from robustkit.evidence.valid_rows import check_meaning, check_values


class StoreListener(Protocol):
    """Is told what a store gets."""

    def written(self, rows: Sequence[Row]) -> None:
        """Rows that were committed together."""

    def noted(self, entries: Mapping[str, Any]) -> None:
        """Entries of the manifest."""


SCHEMA = 6  # increased whenever rows of an older version have other columns, or would mean something else


class Store:
    """The evidence file of a run folder, open until `close`.

    Args:
        folder: the run folder; None keeps the evidence in memory.
        reading: open it for reading only; else it is created if need be, and locked.

    Raises:
        UserError: the folder cannot be read or written, another process writes to it, or the file is not one of ours.
    """

    def __init__(self, folder: Path | None, *, reading: bool = False) -> None:
        self.folder, self.reading = folder, reading
        self.listener: StoreListener | None = None
        self._opened = ExitStack()
        with self._opened:
            if reading:
                assert folder is not None, "there is nothing to read in memory"
                self._connection = open_for_reading(folder, self._opened)
            else:
                self._connection = open_for_writing(folder)
                self._opened.callback(self._connection.close)
            self._opened = self._opened.pop_all()

    def close(self) -> None:
        """Commit and release the file."""
        with self._opened, self._explained():
            self._connection.commit()
            if self.folder is not None and not self.reading and (self.folder / FILE).exists():
                self._connection.execute("PRAGMA journal_mode=DELETE")

    @property
    def blank(self) -> bool:
        """Whether the file has no tables yet."""
        return not self.read("SELECT 1 FROM sqlite_master LIMIT 1")

    @property
    def empty(self) -> bool:
        """Whether there is not a single row of evidence."""
        return not self.read("SELECT 1 FROM clean LIMIT 1")

    def write(self, rows: Iterable[Row]) -> None:
        """Add rows in one transaction; a row that exists already is not changed."""
        rows = list(rows)
        self._require_file()
        by_kind: dict[type, list[Row]] = {}
        for row in rows:
            by_kind.setdefault(type(row), []).append(row)
        with self._explained(), self._connection:
            for kind, alike in by_kind.items():
                marks = ",".join("?" * len(fields(kind)))
                values = map(VALUES_OF[kind], alike)
                self._connection.executemany(f"INSERT OR IGNORE INTO {TABLE_OF[kind]} VALUES ({marks})", values)
        if self.listener is not None and rows:
            self.listener.written(rows)

    def add(self, rows: Iterable[Row]) -> list[Row]:
        """Add rows in one transaction; those of which there is another row already are returned, not written."""
        rows = list(rows)
        before = self._connection.total_changes
        self.write(rows)
        if self._connection.total_changes - before == len(rows):
            return []
        return [row for row in rows if not self._holds(row)]

    def _holds(self, row: Row) -> bool:
        same = " AND ".join(f"{field.name} IS ?" for field in fields(row))
        return bool(self.read(f"SELECT 1 FROM {TABLE_OF[type(row)]} WHERE {same}", *VALUES_OF[type(row)](row)))

    def has(self, kind: type[Any]) -> bool:
        """Whether there is a table for such rows: evidence of older versions has fewer."""
        return bool(self.read("SELECT 1 FROM sqlite_master WHERE name = ?", TABLE_OF[kind]))

    def rows(self, kind: type[R], model: str | None = None, **where: str | int) -> list[R]:
        """Rows of a kind, checked: of one model, or of all, with the given values; none in runs of older versions.

        Raises:
            UserError: a row cannot be one of ours.
        """
        if not self.has(kind):
            return []
        terms = where if model is None else {"model": model, **where}
        clause = " AND ".join(f"{key} = ?" for key in terms) or "1"
        found = self.records(kind, self.read(f"SELECT * FROM {TABLE_OF[kind]} WHERE {clause}", *terms.values()))
        check_meaning(kind, found, self.folder)
        return found

    def records(self, kind: type[R], rows: Iterable[Sequence[Any]]) -> list[R]:
        """Rows of a query as records, their types checked."""
        rows = list(rows)
        check_values(kind, rows, self.folder)
        return [kind(*row) for row in rows]

    def read(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query, unchecked."""
        with self._explained():
            return self._connection.execute(query, values).fetchall()

    def chunks(self, query: str, *values: str | int, size: int) -> Iterator[list[Any]]:
        """The rows of a query, unchecked, at most `size` at a time."""
        with self._explained():
            cursor = self._connection.execute(query, values)
            while rows := cursor.fetchmany(size):
                yield rows

    def every(self, kind: type[R]) -> Iterator[R]:
        """All rows of a kind, checked, one after the other."""
        if not self.has(kind):
            return
        for rows in self.chunks(f"SELECT * FROM {TABLE_OF[kind]}", size=_AT_ONCE):
            yield from self.records(kind, rows)

    def about(self, model: str, samples: Sequence[int], attacks: Iterable[tuple[str, str, str]]) -> Iterator[Row]:
        """The rows about some images of a model that attacks read, and the pictures.

        Args:
            model: its name.
            samples: numbers of the images.
            attacks: norm, eps_text and name of those whose rows are meant; none of them for those about clean and
                corrupted images, of which attacks get the former, too.
        """
        cells = list(attacks)
        for start in range(0, len(samples), _ASKED):
            part = samples[start : start + _ASKED]
            among = f"sample IN ({','.join('?' * len(part))})"
            for kind in _OF_ATTACKS if cells else ():
                for cell in cells:
                    yield from self.of_images(kind, model, part, cell)
            clean = self.read(f"SELECT * FROM clean WHERE model = ? AND {among}", model, *part)
            yield from self.records(CleanRecord, clean)
            # Without a row of the clean image there is no other, and not all of these tables are searched by image.
            for kind in _OF_CLEAN_IMAGES if clean and not cells else ():
                query = f"SELECT * FROM {TABLE_OF[kind]} WHERE model = ? AND {among}"
                yield from self.records(kind, self.read(query, model, *part))

    def of_images(self, kind: type[R], model: str, samples: Sequence[int], attack: tuple[str, str, str]) -> Iterator[R]:
        """The rows of a kind about some images of a model under one attack, given as norm, eps_text and name."""
        for start in range(0, len(samples), _ASKED):
            part = samples[start : start + _ASKED]
            query = f"SELECT * FROM {TABLE_OF[kind]} WHERE {_CELL} AND sample IN ({','.join('?' * len(part))})"
            yield from self.records(kind, self.read(query, model, *attack, *part))

    def content(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Every row of every table, with the table's name, in one order."""
        names = [str(name) for (name,) in self.read("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in sorted(names):
            keys = [row[1] for row in self.read(f"PRAGMA table_info({name})") if row[5]]
            with self._explained():
                for row in self._connection.execute(f"SELECT * FROM {name} ORDER BY {', '.join(keys)}"):
                    yield name, row

    def set_manifest(self, **values: Any) -> None:
        """Set entries of the manifest."""
        with self._explained(), self._connection:
            for key, value in values.items():
                self._connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, json.dumps(value)))
        if self.listener is not None:
            self.listener.noted(values)

    def manifest(self) -> dict[str, Any]:
        """All entries of the manifest; empty if there are none yet."""
        return checked_manifest(self.read("SELECT key, value FROM run ORDER BY key"), self.folder)

    def clean(self, model: str) -> dict[int, CleanRecord]:
        """Rows of clean images, by image, without their rankings, which can be long."""
        rows = self.read("SELECT model, sample, label, pred, '' FROM clean WHERE model = ?", model)
        return {row.sample: row for row in self.records(CleanRecord, rows)}

    def rankings(self, model: str, samples: Sequence[int]) -> dict[int, list[int]]:
        """The most likely wrong classes of some images, the most likely first."""
        marks = ",".join("?" * len(samples))
        query = f"SELECT * FROM clean WHERE model = ? AND sample IN ({marks})"
        rows = self.records(CleanRecord, self.read(query, model, *samples))
        return {row.sample: self._classes(row.ranking) for row in rows}

    def near_classes(self, record: NearnessRecord) -> list[int]:
        """The near wrong classes of a record, the nearest first."""
        return self._classes(record.classes)

    def _classes(self, text: str) -> list[int]:
        if not _RANKING.fullmatch(text):
            raise not_ours(self.folder, "a ranking is not a list of classes")
        return [int(word) for word in text.split()]

    def failed(self, model: str) -> dict[int, FailedRecord]:
        """Images that ended every process which worked on them, by image."""
        return {row.sample: row for row in self.rows(FailedRecord, model)}

    def set_answers(self, answers: Iterable[AnswerRecord]) -> None:
        """Set what models answer at fixed points."""
        rows = [VALUES_OF[AnswerRecord](each) for each in answers]  # the models answer outside the transaction
        with self._explained(), self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)

    def answer(self, role: str, model: str) -> AnswerRecord | None:
        """What a model answered at fixed points; None in runs of versions that did not ask."""
        return next(iter(self.rows(AnswerRecord, model, role=role)), None)

    def _require_file(self) -> None:
        """Check that the file is still there: SQLite goes on writing to one that was deleted or moved."""
        if self.folder is not None and not (self.folder / FILE).exists():
            raise UserError(
                f"{self.folder / FILE} was moved or deleted, or its disk is gone, while the run wrote to it; if it was "
                "moved, move it back, and run the command again."
            )

    def _explained(self) -> AbstractContextManager[None]:
        return errors_explained(self.folder, reading=self.reading)


_AT_ONCE = 1000  # rows in memory as objects; those with pixels can be large
_ASKED = 500  # images in one query: old versions of SQLite allow 999 values
_CELL = "model = ? AND norm = ? AND eps_text = ? AND attack = ?"
_OF_ATTACKS: tuple[type[Any], ...] = (AttackRecord, DrawRecord, NearnessRecord, PictureRecord)
_OF_CLEAN_IMAGES: tuple[type[Any], ...] = (CertificateRecord, CorruptedRecord)
_RANKING = re.compile(r"(\d{1,9}( \d{1,9})*)?", re.ASCII)
