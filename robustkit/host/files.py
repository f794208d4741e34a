"""Atomic writing of files: a temporary file in the same folder gets the content and then replaces the old file."""

import contextlib
import os
import tempfile
from pathlib import Path

from robustkit.errors import UserError

PART = ".part"  # the ending of what a killed process leaves behind


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` and replace an old file in one step; creates the folder if it is missing.

    Raises:
        OSError: the folder cannot be created or written, or the disk is full; an old file is then unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because os.replace is atomic only within one file system.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp lets only the owner read the file; give it the usual permissions of a new file.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, replacing the old file in one step; line ends stay as given.

    Raises:
        UserError: the folder cannot be made or written to, or the disk is full; `path` is as it was before.
    """
    try:
        replace_file(path, text.encode())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"Cannot write {path}: {reason}. Free some space there or choose another folder.") from error


def _umask() -> int:
    # The only portable way to read the mask is to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
