"""Every request that was sent to a server, and every answer: a file of the run folder.

A request is written down before it is sent and an answer before it is used, so a process that is killed has counted
all of them, and asks for nothing again that was answered. A picture's first answer stands for all later ones.
"""

import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch

from robustkit.errors import UserError

from .reply import Reply

FILE: Final = "queries.sqlite"
SENT: Final = 0  # the outcome of a request before it has another: a number of HTTP, or LOST
LOST: Final = 1
_TABLES = (
    "CREATE TABLE request (number INTEGER PRIMARY KEY, server TEXT, picture BLOB, outcome INT)",
    """CREATE TABLE answer (
    server TEXT, picture BLOB, gives TEXT, scores BLOB, PRIMARY KEY (server, picture)) WITHOUT ROWID""",
)
_SECONDS = 2  # to wait for another process


class QueryLedger:
    """The requests and answers of a run folder; without a folder they are kept in memory.

    Raises:
        UserError: the file cannot be written, or robustkit did not write it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._requests: dict[str, int] = {}  # counted in the file once
        with self._explained():
            file = ":memory:" if folder is None else self._file(folder)
            # One thread uses it, but garbage is collected, and so the connection closed, in any.
            self._connection = sqlite3.connect(file, timeout=_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._connection.execute("PRAGMA locking_mode=EXCLUSIVE")
                self._check()
                mode = self._connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
                self._connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
                for table in _TABLES:
                    self._connection.execute(table.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
            except BaseException:
                self._connection.close()
                raise
        weakref.finalize(self, self._connection.close)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def requests(self, server: str) -> int:
        """How many requests were sent to a server."""
        if server not in self._requests:
            self._requests[server] = self._count("SELECT COUNT(*) FROM request WHERE server = ?", server)
        return self._requests[server]

    def answered(self, server: str) -> int:
        """How many pictures it has answered."""
        return self._count("SELECT COUNT(*) FROM answer WHERE server = ?", server)

    def find(self, server: str, picture: bytes) -> Reply | None:
        """The answer to a picture, if there is one."""
        with self._explained():
            row = self._connection.execute(
                "SELECT gives, scores FROM answer WHERE server = ? AND picture = ?", (server, picture)
            ).fetchone()
        return None if row is None else self._reply(*row)

    def begin(self, server: str, picture: bytes) -> int:
        """Write down a request that is about to be sent; returns its number."""
        before = self.requests(server)
        with self._explained():
            cursor = self._connection.execute(
                "INSERT INTO request (server, picture, outcome) VALUES (?, ?, ?)", (server, picture, SENT)
            )
        self._requests[server] = before + 1
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def end(self, number: int, outcome: int) -> None:
        """Write down how a request ended."""
        with self._explained():
            self._connection.execute("UPDATE request SET outcome = ? WHERE number = ?", (outcome, number))

    def keep(self, server: str, picture: bytes, reply: Reply) -> None:
        """Write down the answer to a picture."""
        scores = reply.scores.numpy().astype("<f4").tobytes()
        with self._explained():
            self._connection.execute(
                "INSERT OR IGNORE INTO answer VALUES (?, ?, ?, ?)", (server, picture, reply.gives, scores)
            )

    def _count(self, query: str, server: str) -> int:
        with self._explained():
            return int(self._connection.execute(query, (server,)).fetchone()[0])

    def _reply(self, gives: object, scores: object) -> Reply:
        """A stored answer, checked: the folder may come from anywhere."""
        if gives in ("scores", "labels") and isinstance(scores, bytes) and len(scores) >= 8 and not len(scores) % 4:
            values = torch.frombuffer(bytearray(scores), dtype=torch.float32)
            if bool(values.isfinite().all()):
                return Reply(str(gives), values)
        raise self._not_ours("an answer")

    def _check(self) -> None:
        """Refuse a file with anything but our tables: a trigger or view of somebody else would run unseen."""
        found = {text for (text,) in self._connection.execute("SELECT sql FROM sqlite_master")}
        if not found <= {*_TABLES, None}:
            raise self._not_ours("its tables")

    @staticmethod
    def _file(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / FILE
        if file.is_symlink() or (file.exists() and not file.is_file()):
            raise UserError(f"{file} is not a regular file; give another --out.")
        return file

    def _not_ours(self, what: str) -> UserError:
        return UserError(
            f"{self.folder}/{FILE} was damaged or changed ({what}); restore a copy of it, or evaluate again "
            "with another --out."
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise UserError(
                f"{self.folder}/{FILE} cannot be used ({' '.join(str(error).split())}); free some disk space, end "
                "other runs in this folder, or give another --out."
            ) from None
