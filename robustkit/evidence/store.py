"""The evidence of a run: one SQLite file, one writer, one row per model x attack x image, committed as images finish.

Everything else (CSV, HTML, tables) is computed from it and can be computed again without a model.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from robustkit.errors import UserError

SCHEMA = 1  # increased whenever rows of an older version would mean something else

_TABLES = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS clean (
    model TEXT, sample INT, label INT, pred INT, ranking TEXT, PRIMARY KEY (model, sample)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS certified (
    model TEXT, sample INT, top INT, votes INT, probability REAL, linf REAL, l2 REAL, l1 REAL,
    PRIMARY KEY (model, sample)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attacked (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, success INT, adv_pred INT, question INT, restart INT,
    target INT, linf REAL, l2 REAL, l1 REAL, l0 INT, forwards INT, backwards INT,
    PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS drawn (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, draws INT, selection INT, estimation INT,
    forwards INT, PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS picture (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, shape TEXT, x BLOB, x_adv BLOB,
    PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class CleanRecord:
    """The prediction of a model for one clean image."""

    model: str
    sample: int
    label: int
    pred: int  # -1 where a smoothed or randomized model abstains
    ranking: str  # the most likely wrong classes, as "3 1 7"


@dataclass(frozen=True)
class CertificateRecord:
    """The certificate of a smoothed model for one clean image; written together with its `CleanRecord`."""

    model: str
    sample: int
    top: int  # class that most of the first noisy copies chose
    votes: int  # for this class, of the further noisy copies
    probability: float  # its lower bound
    linf: float  # radii; 0 where nothing is certified
    l2: float
    l1: float


@dataclass(frozen=True)
class AttackRecord:
    """The result of one attack on one image."""

    model: str
    norm: str
    eps_text: str
    attack: str
    sample: int
    success: int
    adv_pred: int
    question: int
    restart: int
    target: int
    linf: float
    l2: float
    l1: float
    l0: int
    forwards: int
    backwards: int


@dataclass(frozen=True)
class DrawRecord:
    """Single answers of a randomized model at the last point of one attack on one image, or at the clean image."""

    model: str
    norm: str  # "-", "0" and "clean" for the clean image
    eps_text: str
    attack: str
    sample: int
    draws: int  # in each half, as in `FreshDraws`
    selection: int
    estimation: int
    forwards: int  # for the verdict on the clean image and these draws; 0 where the attack's row counts them


@dataclass(frozen=True)
class PictureRecord:
    """One image before and after an attack, as the bytes of its floats."""

    model: str
    norm: str
    eps_text: str
    attack: str
    sample: int
    shape: str
    x: bytes
    x_adv: bytes


Row = CleanRecord | CertificateRecord | AttackRecord | DrawRecord | PictureRecord
_TABLE_OF = {
    CleanRecord: "clean",
    CertificateRecord: "certified",
    AttackRecord: "attacked",
    DrawRecord: "drawn",
    PictureRecord: "picture",
}


class Store:
    """The evidence file of a run folder, open until `close`.

    Args:
        folder: the run folder; None keeps the evidence in memory.
        reading: open it for reading only; else it is created if need be, and locked.

    Raises:
        UserError: the folder cannot be written, another process writes to it, or the file is not one of ours.
    """

    def __init__(self, folder: Path | None, *, reading: bool = False) -> None:
        self.folder, self.reading = folder, reading
        with _errors_explained(folder):
            if folder is not None and not reading:
                folder.mkdir(parents=True, exist_ok=True)
            self._connection = _connected(folder, reading)
        try:
            with _errors_explained(folder):
                if not reading:
                    self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Commit and release the file."""
        try:
            with _errors_explained(self.folder):
                self._connection.commit()
                if self.folder is not None and not self.reading:
                    self._connection.execute("PRAGMA journal_mode=DELETE")
        finally:
            self._connection.close()

    @property
    def empty(self) -> bool:
        """Whether there is not a single row of evidence."""
        return not self._read("SELECT 1 FROM clean LIMIT 1")

    def write(self, rows: Iterable[Row]) -> None:
        """Add rows in one transaction; a row that exists already is not changed."""
        with _errors_explained(self.folder), self._connection:
            for row in rows:
                marks = ",".join("?" * len(fields(row)))
                self._connection.execute(f"INSERT OR IGNORE INTO {_TABLE_OF[type(row)]} VALUES ({marks})", astuple(row))

    def set_manifest(self, **values: Any) -> None:
        """Set entries of the manifest."""
        with _errors_explained(self.folder), self._connection:
            for key, value in values.items():
                self._connection.execute("INSERT OR REPLACE INTO run VALUES (?, ?)", (key, json.dumps(value)))

    def manifest(self) -> dict[str, Any]:
        """All entries of the manifest."""
        try:
            return {key: json.loads(value) for key, value in self._read("SELECT key, value FROM run ORDER BY key")}
        except ValueError:
            raise UserError(f"The manifest in {self.folder}/run.sqlite is damaged; give another --out.") from None

    def clean(self, model: str) -> dict[int, CleanRecord]:
        """Rows of clean images, by image, without their rankings, which can be long."""
        rows = self._read("SELECT model, sample, label, pred, '' FROM clean WHERE model = ?", model)
        return {row[1]: CleanRecord(*row) for row in rows}

    def certificates(self, model: str) -> dict[int, CertificateRecord]:
        """Certificates of a smoothed model, by image; empty for other models."""
        rows = self._read("SELECT * FROM certified WHERE model = ?", model)
        return {row[1]: CertificateRecord(*row) for row in rows}

    def rankings(self, model: str, samples: Sequence[int]) -> dict[int, list[int]]:
        """The most likely wrong classes of some images, the most likely first."""
        marks = ",".join("?" * len(samples))
        query = f"SELECT sample, ranking FROM clean WHERE model = ? AND sample IN ({marks})"
        return {row[0]: [int(word) for word in row[1].split()] for row in self._read(query, model, *samples)}

    def attack_records(self, model: str | None = None, **where: str) -> list[AttackRecord]:
        """Attacked images of one model, or of all, at the given norm, eps_text and attack."""
        return [AttackRecord(*row) for row in self._rows("attacked", model, where)]

    def draw_records(self, model: str, **where: str) -> list[DrawRecord]:
        """Single answers of one randomized model, at the given norm, eps_text and attack."""
        return [DrawRecord(*row) for row in self._rows("drawn", model, where)]

    def picture_records(self, model: str | None = None, **where: str) -> list[PictureRecord]:
        """Pictures of one model, or of all, at the given norm, eps_text and attack."""
        return [PictureRecord(*row) for row in self._rows("picture", model, where)]

    def _rows(self, table: str, model: str | None, where: dict[str, str]) -> list[Any]:
        terms = {key: value for key, value in {"model": model, **where}.items() if value is not None}
        clause = " AND ".join(f"{key} = ?" for key in terms) or "1"
        return self._read(f"SELECT * FROM {table} WHERE {clause}", *terms.values())

    def _read(self, query: str, *values: str | int) -> list[Any]:
        with _errors_explained(self.folder):
            return self._connection.execute(query, values).fetchall()

    def _prepare(self) -> None:
        # One writer: the lock is held until the file is closed or the process dies.
        self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        mode = self._connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        self._connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
        self._connection.executescript(_TABLES)


def _connected(folder: Path | None, reading: bool) -> sqlite3.Connection:
    if folder is None:
        return sqlite3.connect(":memory:")
    file = folder / "run.sqlite"
    if not reading:
        return sqlite3.connect(file, timeout=2)
    # After a kill, rows may still be in the journal beside the file; only a connection that may write reads them.
    if file.with_name("run.sqlite-wal").exists():
        return sqlite3.connect(file, timeout=2)
    return sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro&immutable=1", uri=True, timeout=2)


def check_readable(folder: Path) -> Path:
    """The evidence file of a run folder.

    Raises:
        UserError: there is none.
    """
    file = folder / "run.sqlite"
    if not file.is_file():
        raise UserError(f"{folder} is no run folder: it has no run.sqlite; give the folder that an evaluation printed.")
    return file


@contextmanager
def _errors_explained(folder: Path | None) -> Iterator[None]:
    """Turn errors of the file system and of SQLite into a UserError: one sentence with the fix."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "locked" in text:
            raise UserError(f"Another robustkit is at work in {folder}; wait for it, or give another --out.") from None
        if "full" in text:
            raise UserError(
                f"The disk is full, so {folder} could not be written; free some space and run the same command again, "
                "it continues where it stopped."
            ) from None
        raise UserError(
            f"{folder}/run.sqlite cannot be used ({text}); give another --out, or delete the file."
        ) from None
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"The run folder {folder} cannot be written ({reason}); give another --out.") from None
