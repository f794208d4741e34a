"""Atomic writing of files: a temporary file in the same folder gets the content and then replaces the old file.

Never replaced are symbolic links, devices, pipes and folders; and no report replaces evidence, weights or code.
"""

import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from robustkit.errors import UserError
from robustkit.host.text import encoded

PART = ".part"  # the ending of what a killed process leaves behind

MARK: Final = "made by robustkit"  # in a comment at the start of reports that look like what people write
_REPORTS: Final = (".html", ".htm", ".csv", ".json")  # endings of the files that a newer report may replace
_MARKED: Final = (".md", ".tex", ".xml")  # those as well, if they have the mark
_CHUNK = 1 << 20  # bytes of a file that are hashed at once
_START = 512  # bytes of a file that show whether it is text


def replace_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write `pieces` to `path` and replace an old file in one step; creates the folder if it is missing.

    Raises:
        OSError: the folder cannot be created or written, or the disk is full; an old file is then unchanged.
        UserError: `path` is a link, a device or another thing that is no file.
    """
    check_no_special_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because os.replace is atomic only within one file system.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=PART, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp lets only the owner read the file; give it the usual permissions of a new file.
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal digits."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a report as UTF-8 to `path`; see `write_pieces`."""
    write_pieces(path, [text])


def write_pieces(path: Path, pieces: Iterable[str]) -> None:
    """Write the pieces of a report as UTF-8 to `path`, replacing an older one in one step; line ends stay as given.

    Raises:
        UserError: the folder cannot be made or written to, the disk is full, or `path` is something that no report
            may replace; it is as it was before.
    """
    try:
        check_report_target(path)
        replace_file(path, (encoded(piece) for piece in pieces))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        advice = "Free some space there or choose" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Choose"
        raise UserError(f"Cannot write {path}: {reason}. {advice} another folder.") from error


def check_report_target(path: Path) -> None:
    """Check that a report may be written to `path`: there is nothing, or an older report.

    Raises:
        UserError: there is evidence, a model, code, or no regular file.
        OSError: it cannot be read.
    """
    check_no_special_file(path)
    if not path.exists():
        return
    with path.open("rb") as file:
        start = file.read(_START)
    ours = path.suffix.lower() in _REPORTS or (path.suffix.lower() in _MARKED and MARK.encode() in start)
    if not ours or b"\0" in start:
        raise UserError(
            f"{path} exists and is not a report, so it is not replaced; give another name, or move it away."
        )


def check_no_special_file(path: Path) -> None:
    """Check that `path` may be replaced by a file: it is a regular file, or nothing.

    Raises:
        UserError: it is a link, a folder, a device or a pipe.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is {_kind(mode)} and no file, so it is not replaced; give another name.")


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return "a folder" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"


def _umask() -> int:
    # The only portable way to read the mask is to set it.
    mask = os.umask(0)
    os.umask(mask)
    return mask
