"""One number for all evidence of a run: published elsewhere, it shows that not a bit was changed since."""

import hashlib
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

from robustkit.evidence.store import Store


def evidence_digest(folder: Path) -> str:
    """The SHA-256, in hex, of every row and every entry of the manifest in a run folder.

    It depends on the content alone, not on how SQLite arranges it in the file.

    Raises:
        UserError: the folder has no evidence that can be read.
    """
    store, digest = Store(folder, reading=True), hashlib.sha256()
    try:
        for table, row in store.content():
            digest.update(b"".join([_framed(table.encode()), *map(_part, row)]))
    finally:
        store.close()
    return digest.hexdigest()


def _part(value: Any) -> bytes:
    # Most rows have the same few texts and whole numbers.
    return _framed(_encoded(value)) if type(value) in (float, bytes) else _common(value)


@lru_cache(1 << 16, typed=True)
def _common(value: Any) -> bytes:
    return _framed(_encoded(value))


def _framed(content: bytes) -> bytes:
    # With its length, so that no two lists of values have the same bytes.
    return struct.pack("<Q", len(content)) + content


def _encoded(value: Any) -> bytes:
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    return f"{type(value).__name__} {value}".encode("utf-8", "surrogatepass")
