"""Texts of reports as files."""

from pathlib import Path

from robustkit.errors import UserError
from robustkit.host.files import replace_file


def write_text(path: Path, text: str) -> None:
    """Put `text` as UTF-8 at `path`, replacing what was there in one step; line ends stay as given.

    Raises:
        UserError: the folder cannot be made or written to, or the disk is full. `path` is as it was before.
    """
    try:
        replace_file(path, text.encode())
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UserError(f"Cannot write {path}: {reason}. Free some space there or choose another folder.") from error
