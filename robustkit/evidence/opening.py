"""Open the evidence file of a run folder, and explain in one sentence why it cannot be used.

The file may come from anywhere. It is read only if it holds our tables and nothing else: a view, trigger, index or
generated column of somebody else could run for ever, or change what is read.
"""

import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from robustkit.errors import UserError
from robustkit.evidence.derived import DERIVED

FILE = "run.sqlite"
TABLES = (
    "CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE clean (
    model TEXT, sample INT, label INT, pred INT, ranking TEXT, PRIMARY KEY (model, sample)) WITHOUT ROWID""",
    """CREATE TABLE certified (
    model TEXT, sample INT, top INT, votes INT, probability REAL, linf REAL, l2 REAL, l1 REAL,
    PRIMARY KEY (model, sample)) WITHOUT ROWID""",
    """CREATE TABLE attacked (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, success INT, adv_pred INT, queries_to_break INT,
    restart INT, target INT, linf REAL, l2 REAL, l1 REAL, l0 INT, forwards INT, backwards INT,
    PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID""",
    """CREATE TABLE picture (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, shape TEXT, x BLOB, x_adv BLOB,
    PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID""",
    """CREATE TABLE confidence (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, probability REAL,
    PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID""",
    """CREATE TABLE drawn (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, draws INT, selection INT, estimation INT,
    forwards INT, PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID""",
    """CREATE TABLE near (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, ratio REAL, classes TEXT, predicted REAL,
    obtained REAL, at_clean REAL, unseen REAL, clean_step REAL, clean_way REAL,
    clean_unseen REAL, random_error REAL, random_bend REAL,
    PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID""",
    """CREATE TABLE queried (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, queries INT, distances TEXT,
    PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID""",
    """CREATE TABLE corrupted (
    model TEXT, corruption TEXT, severity INT, sample INT, pred INT, pixels INT,
    PRIMARY KEY (model, corruption, severity, sample)) WITHOUT ROWID""",
    """CREATE TABLE witness (
    model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, shape TEXT, kind TEXT, x_adv BLOB,
    PRIMARY KEY (model, norm, eps_text, attack, sample)) WITHOUT ROWID""",
    "CREATE TABLE original (sample INT PRIMARY KEY, shape TEXT, kind TEXT, x BLOB) WITHOUT ROWID",
    """CREATE TABLE checked (
    model TEXT, norm TEXT, eps_text TEXT, probe TEXT, sample INT, outcome INT, value REAL, forwards INT, backwards INT,
    PRIMARY KEY (model, norm, eps_text, probe, sample)) WITHOUT ROWID""",
    """CREATE TABLE failed (
    model TEXT, sample INT, label INT, tries INT, reason TEXT, PRIMARY KEY (model, sample)) WITHOUT ROWID""",
    "CREATE TABLE answers (role TEXT, model TEXT, images INT, logits BLOB, PRIMARY KEY (role, model)) WITHOUT ROWID",
)

# Beginnings of tables that older versions wrote: robustkit's own, but with other columns.
_FIRST_NEAR = (
    "CREATE TABLE near ( model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, ratio REAL, classes TEXT, "
    "predicted REAL, obtained REAL, "
)
_ADDED_TO_NEAR = ("at_clean REAL, ", "unseen REAL, ", "clean_step REAL, clean_way REAL, clean_unseen REAL, ")
_OLDER = (
    "CREATE TABLE attacked ( model TEXT, norm TEXT, eps_text TEXT, attack TEXT, sample INT, success INT, adv_pred INT, "
    "question INT,",
    *(f"{_FIRST_NEAR}{''.join(_ADDED_TO_NEAR[:count])}PRIMARY KEY" for count in range(len(_ADDED_TO_NEAR) + 1)),
)
_SECONDS = 2  # to wait for another process
_LONGEST = 64 * 2**20  # bytes of one value; the pixels of the largest stored picture take 1.5 MB


def open_for_writing(folder: Path | None) -> sqlite3.Connection:
    """The evidence file of a folder, created if need be and locked until it is closed; None opens one in memory.

    Raises:
        UserError: the folder cannot be written, another process writes to it, or the file is not one of ours.
    """
    with errors_explained(folder):
        if folder is None:
            connection = sqlite3.connect(":memory:")
        else:
            folder.mkdir(parents=True, exist_ok=True)
            if not _check_plain(folder).exists():
                _require_no_results(folder)
            connection = sqlite3.connect(folder / FILE, timeout=_SECONDS)
        with _closed_after_error(connection):
            # One writer: the lock is held until the file is closed or the process dies.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            _check_ours(connection, folder)
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
            for table in TABLES:
                connection.execute(table.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
            connection.commit()
        return connection


def open_for_reading(folder: Path, stack: ExitStack) -> sqlite3.Connection:
    """The evidence file of a folder, which is not changed.

    Args:
        folder: the run folder.
        stack: closes the connection.

    Raises:
        UserError: there is no file, an evaluation writes to it, or it is not one of ours.
    """
    with errors_explained(folder, reading=True):
        file = _check_plain(folder).resolve()  # where a link points, SQLite looks for the journal
        if not file.is_file():
            raise UserError(
                f"{folder} is not a run folder: it has no {FILE}; give the folder that an evaluation printed."
            )
        try:
            # After a kill, rows may still be in the journal; a connection that may write moves them into the file.
            return _opened(file, "?mode=rw" if _journals(file) else "?mode=ro", folder, stack)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise
            # Where nothing can be written beside the file, its journal can be read only in a copy.
            copies = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="robustkit-")))
            for each in (file, *_journals(file)):
                shutil.copyfile(each, copies / each.name)
            return _opened(copies / FILE, "", folder, stack)


@contextmanager
def errors_explained(folder: Path | None, *, reading: bool = False) -> Iterator[None]:
    """Turn errors of the file system and of SQLite into a UserError: one sentence with the fix."""
    try:
        yield
    except sqlite3.Error as error:
        raise UserError(_explained(str(error), folder, reading)) from None
    except OSError as error:
        reason = error.strerror or error
        what = "read" if reading else "written"
        fix = "the evidence is as it was" if reading else "give another --out"
        raise UserError(f"The run folder {folder} cannot be {what} ({reason}); {fix}.") from None


def not_ours(folder: Path | None, what: str) -> UserError:
    """The error for a file that robustkit did not write as it stands."""
    return UserError(
        f"{folder}/{FILE} was damaged or changed ({what}); restore a copy of it, or evaluate again with another --out."
    )


def another_version(folder: Path | None) -> UserError:
    """The error for evidence whose rows have other columns, or mean something else."""
    return UserError(
        f"{folder} was written by another version of robustkit; evaluate again with this one and another --out."
    )


def _explained(text: str, folder: Path | None, reading: bool) -> str:
    if "locked" in text:
        fix = "wait until it ends" if reading else "wait for it, or give another --out"
        return f"Another robustkit is at work in {folder}; {fix}."
    if "full" in text:
        return (
            f"The disk is full, so {folder} could not be {'read' if reading else 'written'}; free some space and run "
            "the same command again" + ("." if reading else ": an evaluation continues, a merge starts again.")
        )
    if any(words in text for words in ("readonly", "unable to open", "disk I/O", "locking protocol")):
        return (
            f"{folder}/{FILE} could not be {'read' if reading else 'written'} ({text}); the evidence in it is as it "
            "was. Check the permissions and the space of the disk."
        )
    return (
        f"{folder}/{FILE} cannot be used ({' '.join(text.split())}); restore a copy of it, or evaluate again with "
        "another --out."
    )


def _opened(file: Path, query: str, folder: Path, stack: ExitStack) -> sqlite3.Connection:
    uri = file.resolve().as_uri() + query
    connection = sqlite3.connect(uri, uri=True, timeout=_SECONDS)
    with _closed_after_error(connection):
        _check_ours(connection, folder)
    stack.callback(connection.close)
    return connection


def _require_no_results(folder: Path) -> None:
    """Refuse to begin a run beside files that it would overwrite: they may be all that is left of another one."""
    for name in DERIVED:
        if (folder / name).exists():
            raise UserError(
                f"{folder} has a {name} and no {FILE}, and a run would overwrite it; give another --out, or move it."
            )


def _journals(file: Path) -> list[Path]:
    beside = (file.with_name(f"{file.name}-{kind}") for kind in ("wal", "journal"))
    return [each for each in beside if each.is_file()]


@contextmanager
def _closed_after_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _check_plain(folder: Path) -> Path:
    file = folder / FILE
    if file.exists() and not file.is_file():
        raise UserError(f"{file} is not a regular file; give another folder.")
    return file


def _check_ours(connection: sqlite3.Connection, folder: Path | None) -> None:
    """Check tables and pages before anything is read; a file that has none yet is ours to fill.

    Raises:
        UserError: there is something that we did not write.
    """
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA cell_size_check=ON")
    if sys.version_info >= (3, 11):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
    ours = {_plain(table) for table in TABLES}
    for kind, name, statement in connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
        own_index = kind == "index" and statement is None and str(name).startswith("sqlite_autoindex_")
        plain = _plain(str(statement))
        if plain.startswith(_OLDER):
            raise another_version(folder)
        if not own_index and plain not in ours:
            raise not_ours(folder, f"it holds the {kind} {str(name)[:40]!r}")
    # Also finds pages that refer to one another in a circle, which a query would follow for ever.
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise not_ours(folder, " ".join(str(answer).split())[:80])


def _plain(statement: str) -> str:
    return " ".join(statement.split())
