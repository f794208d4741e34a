"""What commands write: their output folder, the files of an evaluation, and labels in reports."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from robustkit.errors import UserError
from robustkit.host.lock import locked

if TYPE_CHECKING:
    from robustkit.data import Dataset
    from robustkit.evidence.run import Run


@contextmanager
def output_folder(folder: Path, advice: str = "") -> Iterator[None]:
    """A context for work that writes into `folder`.

    The folder is created, tested and locked before the work, and removed after it if it is empty. Ctrl-C prints
    `advice` and ends the command with status 130.

    Raises:
        UserError: the folder cannot be created or written, or another process writes to it.
    """
    check_writable(folder)
    try:
        with locked(folder):
            yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted. {advice}".strip(), err=True)
        sys.exit(130)
    finally:
        remove_if_empty(folder)


def check_writable(folder: Path) -> None:
    """Create the folder and a file in it, so that an unwritable folder is an error before the work, not after it.

    Raises:
        UserError: the folder cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be written ({error.strerror}); give another --out.") from None


def remove_if_empty(folder: Path) -> None:
    """Remove the folder if it is empty, for example after a command that failed."""
    with suppress(OSError):
        folder.rmdir()


def write_evaluation(run: "Run", folder: Path) -> None:
    """Write the CSV files and the HTML report of an evaluation, and print its table."""
    from rich.console import Console

    from .wings import reports

    run.write(folder)
    reports.print_table(run, Console())


def dataset_label(data: "Dataset") -> str:
    """Name and split of the data, as reports show them."""
    return f"{data.name} {data.split}".strip()


def command_line() -> str:
    """The command as the user typed it."""
    return " ".join(["robustkit", *sys.argv[1:]])
