"""One number for all evidence of a run: published elsewhere, it shows that not a bit was changed since."""

import hashlib
import struct
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
            digest.update(_framed(table.encode()))
            for value in row:
                digest.update(_framed(_encoded(value)))
    finally:
        store.close()
    return digest.hexdigest()


def _framed(content: bytes) -> bytes:
    # With its length, so that no two lists of values have the same bytes.
    return struct.pack("<Q", len(content)) + content


def _encoded(value: Any) -> bytes:
    if isinstance(value, bytes):
        return b"b" + value
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    return f"{type(value).__name__} {value}".encode("utf-8", "surrogatepass")
