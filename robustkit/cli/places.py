"""Folders that a command writes into."""

from contextlib import suppress
from pathlib import Path

from robustkit.errors import UserError


def check_writable(folder: Path) -> None:
    """Meet an unwritable place before the work, not after it.

    Raises:
        UserError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be written ({error.strerror}); give another --out.") from None


def remove_if_empty(folder: Path) -> None:
    """Leave no empty folder behind a command that failed."""
    with suppress(OSError):
        folder.rmdir()
