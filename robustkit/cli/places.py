"""Folders that a command writes into."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from robustkit.errors import UserError


@contextmanager
def writing(folder: Path, advice: str = "") -> Iterator[None]:
    """A command's work in a folder, refused before it begins if that cannot be written.

    Ctrl-C ends it with status 130 and the advice. No empty folder is left behind.

    Raises:
        UserError: the folder cannot be made or written.
    """
    check_writable(folder)
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted. {advice}".strip(), err=True)
        sys.exit(130)
    finally:
        remove_if_empty(folder)


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
