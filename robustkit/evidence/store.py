"""The evidence of a run: one SQLite file, one writer, one row per model x attack x image, committed as images finish.

Everything else (CSV, HTML, tables) is computed from it and can be computed again without a model.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from robustkit.checks.attack_columns import AttackColumns
from robustkit.checks.facts import ProbeRecord
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
    ConfidenceRecord,
    CorruptedRecord,
    DrawRecord,
    FailedRecord,
    NearnessRecord,
    OriginalRecord,
    PictureRecord,
    QueryRecord,
    R,
    Row,
    WitnessRecord,
)


class StoreListener(Protocol):
    """Is told what a store gets."""

    def written(self, rows: Sequence[Row]) -> None:
        """Rows that were committed together."""

    def noted(self, entries: Mapping[str, Any]) -> None:
        """Entries of the manifest."""


SCHEMA = 1  # increased whenever rows of an older version would mean something else


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
        return not self._read("SELECT 1 FROM sqlite_master LIMIT 1")

    @property
    def empty(self) -> bool:
        """Whether there is not a single row of evidence."""
        return not self._read("SELECT 1 FROM clean LIMIT 1")

    def write(self, rows: Iterable[Row]) -> None:
        """Add rows in one transaction; a row that exists already is not changed."""
        rows = list(rows)
        self._require_file()
        by_kind: dict[type, list[tuple[Any, ...]]] = {}
        for row in rows:
            by_kind.setdefault(type(row), []).append(VALUES_OF[type(row)](row))
        with self._explained(), self._connection:
            for kind, values in by_kind.items():
                marks = ",".join("?" * len(values[0]))
                self._connection.executemany(f"INSERT OR IGNORE INTO {TABLE_OF[kind]} VALUES ({marks})", values)
        if self.listener is not None and rows:
            self.listener.written(rows)

    def add(self, rows: Iterable[Row]) -> list[Row]:
        """Add rows in one transaction; those of which there is another row already are returned, not written."""
        others = []
        with self._explained(), self._connection:
            for row in rows:
                table, values = TABLE_OF[type(row)], VALUES_OF[type(row)](row)
                marks = ",".join("?" * len(values))
                written = self._connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values)
                if not written.rowcount:
                    same = " AND ".join(f"{field.name} IS ?" for field in fields(row))
                    query = f"SELECT 1 FROM {table} WHERE {same}"
                    if self._connection.execute(query, values).fetchone() is None:
                        others.append(row)
        return others

    def every(self, kind: type[R]) -> Iterator[R]:
        """All rows of a kind, checked, one after the other."""
        if not self._has(TABLE_OF[kind]):
            return
        with self._explained():
            for row in self._connection.execute(f"SELECT * FROM {TABLE_OF[kind]}"):
                yield from self._records(kind, [row])

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
                    query = f"SELECT * FROM {TABLE_OF[kind]} WHERE {_CELL} AND {among}"
                    yield from self._records(kind, self._read(query, model, *cell, *part))
            clean = self._read(f"SELECT * FROM clean WHERE model = ? AND {among}", model, *part)
            yield from self._records(CleanRecord, clean)
            # Without a row of the clean image there is no other, and not all of these tables are searched by image.
            for kind in _OF_CLEAN_IMAGES if clean and not cells else ():
                query = f"SELECT * FROM {TABLE_OF[kind]} WHERE model = ? AND {among}"
                yield from self._records(kind, self._read(query, model, *part))

    def content(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Every row of every table, with the table's name, in one order."""
        names = [str(name) for (name,) in self._read("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in sorted(names):
            keys = [row[1] for row in self._read(f"PRAGMA table_info({name})") if row[5]]
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
        return checked_manifest(self._read("SELECT key, value FROM run ORDER BY key"), self.folder)

    def clean(self, model: str) -> dict[int, CleanRecord]:
        """Rows of clean images, by image, without their rankings, which can be long."""
        rows = self._read("SELECT model, sample, label, pred, '' FROM clean WHERE model = ?", model)
        return {row.sample: row for row in self._records(CleanRecord, rows)}

    def failed(self, model: str) -> dict[int, FailedRecord]:
        """Images that ended every process which worked on them, by image; empty in runs of versions without workers."""
        if not self._has("failed"):
            return {}
        records = self._records(FailedRecord, self._rows("failed", model, {}))
        if any(min(row.sample, row.label, row.tries - 1) < 0 or not _REASON.fullmatch(row.reason) for row in records):
            raise not_ours(self.folder, "an image without a verdict has no end of its processes")
        return {row.sample: row for row in records}

    def certificates(self, model: str) -> dict[int, CertificateRecord]:
        """Certificates of a smoothed model, by image; empty for other models."""
        rows = self._read("SELECT * FROM certified WHERE model = ?", model)
        return {row.sample: row for row in self._records(CertificateRecord, rows)}

    def rankings(self, model: str, samples: Sequence[int]) -> dict[int, list[int]]:
        """The most likely wrong classes of some images, the most likely first."""
        marks = ",".join("?" * len(samples))
        query = f"SELECT * FROM clean WHERE model = ? AND sample IN ({marks})"
        rows = self._records(CleanRecord, self._read(query, model, *samples))
        return {row.sample: self._classes(row.ranking) for row in rows}

    def nearness(self, model: str, **where: str) -> list[NearnessRecord]:
        """How near the images of one model are to the wrong classes, at the given norm, eps_text and attack.

        Empty in runs of versions that did not measure it.
        """
        if not self._has("near"):
            return []
        return self._records(NearnessRecord, self._rows("near", model, where))

    def query_records(self, model: str) -> list[QueryRecord]:
        """The queries of attacks without gradients on one model; empty in runs of versions that did not count them."""
        if not self._has("queried"):
            return []
        records = self._records(QueryRecord, self._rows("queried", model, {}))
        if not all(_DISTANCES.fullmatch(record.distances) for record in records):
            raise not_ours(self.folder, "distances after queries are no numbers")
        return records

    def probe_records(self, model: str) -> list[ProbeRecord]:
        """The passes that checks made on one model; empty in runs of versions that had none."""
        if not self._has("checked"):
            return []
        return self._records(ProbeRecord, self._rows("checked", model, {}))

    def near_classes(self, record: NearnessRecord) -> list[int]:
        """The near wrong classes of a record, the nearest first."""
        return self._classes(record.classes)

    def _classes(self, text: str) -> list[int]:
        if not _RANKING.fullmatch(text):
            raise not_ours(self.folder, "a ranking is no list of classes")
        return [int(word) for word in text.split()]

    def attack_records(self, model: str | None = None, **where: str) -> list[AttackRecord]:
        """Attacked images of one model, or of all, at the given norm, eps_text and attack."""
        records = self._records(AttackRecord, self._rows("attacked", model, where))
        if any(record.success not in (0, 1) for record in records):
            raise not_ours(self.folder, "an attack neither succeeded nor failed")
        return records

    def attack_columns(self, model: str) -> dict[tuple[str, str, str], AttackColumns]:
        """All attacked images of one model, by norm, eps_text and attack."""
        cells = self._read("SELECT DISTINCT model, norm, eps_text, attack FROM attacked WHERE model = ?", model)
        self._check(AttackRecord, cells)
        return {(norm, eps_text, attack): self._cell(*cell) for cell in cells for _, norm, eps_text, attack in [cell]}

    def _cell(self, model: str, norm: str, eps_text: str, attack: str) -> AttackColumns:
        names = [field.name for field in fields(AttackColumns)]
        query = f"SELECT {', '.join(names)} FROM attacked WHERE {_CELL} ORDER BY sample"
        parts = []
        with self._explained():
            cursor = self._connection.execute(query, (model, norm, eps_text, attack))
            while rows := cursor.fetchmany(_CHUNK):
                part = AttackColumns.valid(rows)
                if part is None:
                    self._check(AttackRecord, rows, names)
                parts.append(AttackColumns.of(rows) if part is None else part)
        found = AttackColumns.joined(parts)
        if (found.success < 0).any() or (found.success > 1).any():
            raise not_ours(self.folder, "an attack neither succeeded nor failed")
        if (np.diff(found.sample) <= 0).any():
            raise not_ours(self.folder, "an image stands twice under one attack")
        return found

    def pictured_records(self) -> list[AttackRecord]:
        """The attacked images of which there are pictures."""
        key = "model, norm, eps_text, attack, sample"
        # CROSS: SQLite is to begin with the few pictures, and not to look for one of each row.
        query = f"SELECT attacked.* FROM picture CROSS JOIN attacked USING ({key})"
        return self._records(AttackRecord, self._read(query))

    def attacked_cells(self) -> list[tuple[str, str, str, str]]:
        """Model, norm, eps_text and attack of all rows of attacked images, each once."""
        rows = self._read("SELECT DISTINCT model, norm, eps_text, attack FROM attacked")
        return [(str(model), str(norm), str(eps_text), str(attack)) for model, norm, eps_text, attack in rows]

    def draw_records(self, model: str, **where: str) -> list[DrawRecord]:
        """Single answers of one randomized model, at the given norm, eps_text and attack."""
        records = self._records(DrawRecord, self._rows("drawn", model, where))
        if any(not 0 <= min(row.selection, row.estimation) <= max(row.selection, row.estimation) <= row.draws
               or row.draws < 1 for row in records):  # fmt: skip
            raise not_ours(self.folder, "an image has more right draws than draws")
        return records

    def picture_records(self, model: str | None = None, **where: str) -> list[PictureRecord]:
        """Pictures of one model, or of all, at the given norm, eps_text and attack."""
        return self._records(PictureRecord, self._rows("picture", model, where))

    def confidence_records(self) -> list[ConfidenceRecord]:
        """How confident models are in the classes that they predict for pictures; empty in runs of older versions."""
        if not self._has("confidence"):
            return []
        records = self._records(ConfidenceRecord, self._rows("confidence", None, {}))
        if any(row.probability is None or not 0 <= row.probability <= 1 for row in records):
            raise not_ours(self.folder, "a confidence is no probability")
        return records

    def corrupted_verdicts(self, model: str) -> dict[tuple[str, int], dict[int, bool]]:
        """By corruption and severity: by image, whether it is right; empty in runs of versions that had none.

        SQLite checks and compares: there may be 75 rows for each image.
        """
        if not self._has("corrupted"):
            return {}
        if self._read(f"SELECT 1 FROM corrupted WHERE model = ? AND NOT ({_CORRUPTED}) LIMIT 1", model):
            raise not_ours(self.folder, "a row about a corrupted image holds another type")
        verdicts: dict[tuple[str, int], dict[int, bool]] = {}
        for level in self._read("SELECT DISTINCT corruption, severity FROM corrupted WHERE model = ?", model):
            rows = self._read(
                "SELECT sample, corrupted.pred = label FROM corrupted LEFT JOIN clean USING (model, sample) "
                "WHERE model = ? AND corruption = ? AND severity = ?", model, *level,
            )  # fmt: skip
            verdicts[level] = dict(rows)
        if any(None in own.values() for own in verdicts.values()):
            raise not_ours(self.folder, f"rows of {model[:40]!r} have no row of the clean image")
        return verdicts

    def corrupted_records(self, model: str) -> list[CorruptedRecord]:
        """The predictions of one model for corrupted images; empty in runs of versions that had none."""
        if not self._has("corrupted"):
            return []
        return self._records(CorruptedRecord, self._rows("corrupted", model, {}))

    def corrupted_images(self, model: str) -> list[tuple[str, int, int, int, int, int]]:
        """Corruption, image, label, severities judged, how many of them are right, and the sum of the pictures' hashes.

        `corrupted_verdicts` has checked the rows.
        """
        if not self._has("corrupted"):
            return []
        rows = self._read(
            "SELECT corruption, sample, label, COUNT(*), SUM(corrupted.pred = label), SUM(pixels) "
            "FROM corrupted JOIN clean USING (model, sample) WHERE model = ? "
            "GROUP BY corruption, sample ORDER BY corruption, sample", model,
        )  # fmt: skip
        return [tuple(row) for row in rows]

    def differing_picture(self) -> tuple[str, int, int] | None:
        """Corruption, severity and image of a picture that was not the same for two models; None if there is none."""
        if not self._has("corrupted"):
            return None
        rows = self._read(
            "SELECT corruption, severity, sample FROM corrupted GROUP BY corruption, severity, sample "
            "HAVING MIN(pixels) <> MAX(pixels) LIMIT 1"
        )
        return tuple(rows[0]) if rows else None

    def witnesses(self, model: str) -> list[tuple[str, str, str, int]]:
        """Norm, eps_text, attack and image of each adversarial example that was kept of a model, without its pixels."""
        if not self._has("witness"):
            return []
        found = self._read("SELECT norm, eps_text, attack, sample FROM witness WHERE model = ?", model)
        return [(str(norm), str(eps_text), str(attack), int(sample)) for norm, eps_text, attack, sample in found]

    def witness(self, model: str, norm: str, eps_text: str, attack: str, sample: int) -> WitnessRecord | None:
        """One adversarial example that was kept."""
        where: dict[str, str | int] = {"norm": norm, "eps_text": eps_text, "attack": attack, "sample": sample}
        rows = self._rows("witness", model, where) if self._has("witness") else []
        return next(iter(self._records(WitnessRecord, rows)), None)

    def original(self, sample: int) -> OriginalRecord | None:
        """A clean image of which adversarial examples were kept."""
        rows = self._rows("original", None, {"sample": sample}) if self._has("original") else []
        return next(iter(self._records(OriginalRecord, rows)), None)

    def set_answers(self, answers: Iterable[AnswerRecord]) -> None:
        """Set what models answer at fixed points."""
        rows = [VALUES_OF[AnswerRecord](each) for each in answers]  # the models answer outside the transaction
        with self._explained(), self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)

    def answer(self, role: str, model: str) -> AnswerRecord | None:
        """What a model answered at fixed points; None in runs of versions that did not ask."""
        if not self._has("answers"):
            return None
        rows = self._read("SELECT * FROM answers WHERE role = ? AND model = ?", role, model)
        return next(iter(self._records(AnswerRecord, rows)), None)

    def _require_file(self) -> None:
        """Check that the file is still there: SQLite goes on writing to one that was deleted."""
        if self.folder is not None and not (self.folder / FILE).exists():
            raise UserError(
                f"{self.folder / FILE} was deleted, or its disk is gone, while the run wrote to it, and its content is "
                "lost; run the command again."
            )

    def _has(self, table: str) -> bool:
        """Whether there is such a table: evidence of older versions has fewer."""
        return bool(self._read("SELECT 1 FROM sqlite_master WHERE name = ?", table))

    def _rows(self, table: str, model: str | None, where: Mapping[str, str | int]) -> list[Any]:
        terms = {key: value for key, value in {"model": model, **where}.items() if value is not None}
        clause = " AND ".join(f"{key} = ?" for key in terms) or "1"
        return self._read(f"SELECT * FROM {table} WHERE {clause}", *terms.values())

    def _read(self, query: str, *values: str | int) -> list[Any]:
        with self._explained():
            return self._connection.execute(query, values).fetchall()

    def _records(self, kind: type[R], rows: Iterable[Sequence[Any]]) -> list[R]:
        """Rows as records."""
        rows = list(rows)
        self._check(kind, rows)
        return [kind(*row) for row in rows]

    def _check(self, kind: type[R], rows: Sequence[Sequence[Any]], names: Sequence[str] | None = None) -> None:
        """Check each value, as SQLite stores any type in any column.

        Args:
            kind: of the rows.
            rows: their first values, or those of `names`.
            names: None takes the first fields, in their order.
        """
        types = {field.name: field.type for field in fields(kind)}
        # Column by column: a large run has ten million values.
        for name, values in zip(names or types, zip(*rows, strict=True), strict=False):
            if not _all_valid(types[name], values):
                wrong = next(value for value in values if not _VALID[types[name]](value))
                raise not_ours(self.folder, f"{TABLE_OF[kind]}.{name} is {str(wrong)[:40]!r}")

    def _explained(self) -> AbstractContextManager[None]:
        return errors_explained(self.folder, reading=self.reading)


def _all_valid(expected: Any, values: Sequence[Any]) -> bool:
    """Whether all values of a column are valid; as `_VALID` says it of one."""
    kinds = set(map(type, values))
    if expected is int:
        return kinds <= {int} and min(values, default=0) >= -1 and max(values, default=0) < 1 << 53
    allowed: dict[Any, set[type]] = {float: {float, int, type(None)}, str: {str}, bytes: {bytes}}
    return kinds <= allowed[expected]


# By the type of a record's field. SQLite stores NaN as NULL.
_VALID: dict[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    bytes: lambda value: isinstance(value, bytes),
    int: lambda value: isinstance(value, int) and -1 <= value < 1 << 53,
    float: lambda value: value is None or isinstance(value, (int, float)),
}
_CORRUPTED = (
    "typeof(corruption) = 'text' AND typeof(severity) = 'integer' AND typeof(sample) = 'integer' AND sample >= 0 AND "
    "typeof(pred) = 'integer' AND pred >= -1 AND typeof(pixels) = 'integer'"
)
_CELL = "model = ? AND norm = ? AND eps_text = ? AND attack = ?"
_ASKED = 500  # images in one query: old versions of SQLite allow 999 values
_OF_ATTACKS: tuple[type[Any], ...] = (AttackRecord, DrawRecord, NearnessRecord, PictureRecord)
_OF_CLEAN_IMAGES: tuple[type[Any], ...] = (CertificateRecord, CorruptedRecord)
_CHUNK = 1 << 16  # rows that are in memory as objects
_REASON = re.compile(r"SIG[A-Z0-9+_-]{1,12}|(signal|status) -?(\d{1,10}|None)", re.ASCII)
_RANKING = re.compile(r"(\d{1,9}( \d{1,9})*)?", re.ASCII)
_DISTANCE = r"\d{1,9}:\d{1,12}(\.\d{1,12})?(e[+-]\d{1,2})?"
_DISTANCES = re.compile(rf"({_DISTANCE}( {_DISTANCE})*)?", re.ASCII)
