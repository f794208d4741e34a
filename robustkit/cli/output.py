"""What commands write: their output folder, the files of an evaluation, and labels in reports."""

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from robustkit.errors import UserError
from robustkit.host.files import check_report_target
from robustkit.host.lock import locked

from .terminal import echo

if TYPE_CHECKING:
    from robustkit.data import Dataset
    from robustkit.evidence.run import Run


@contextmanager
def output_folder(folder: Path, reports: Sequence[str], checkpoints: str = "") -> Iterator[None]:
    """A context for work that writes into `folder`.

    The folder is created, tested and locked before the work, and removed after it if it is empty. Ctrl-C says
    whether the same command goes on from what is stored, and ends the command with status 130.

    Args:
        folder: the folder.
        reports: names of the reports that will be written there.
        checkpoints: a glob below the folder, of the files from which the same command goes on; empty if it never does.

    Raises:
        UserError: the folder cannot be created or written, another process writes to it, or something else than a
            report has the name of one.
    """
    check_writable(folder, reports)
    try:
        with locked(folder):
            yield
    except KeyboardInterrupt:
        advice = how_to_go_on(folder, any(folder.glob(checkpoints))) if checkpoints else ""
        echo(f"Interrupted. {advice}".strip(), err=True)
        sys.exit(130)
    finally:
        remove_if_empty(folder)


def how_to_go_on(place: Path, stored: bool) -> str:
    """The sentence after Ctrl-C; `place` is where a checkpoint is stored, if there is one."""
    if stored:
        return f"The same command goes on from what is stored in {place}."
    return "Nothing is stored yet, so the same command begins again."


def check_writable(folder: Path, reports: Sequence[str] = ()) -> None:
    """Create the folder and a file in it, so that an unwritable folder is an error before the work, not after it.

    Args:
        folder: the folder.
        reports: names of the reports that will be written there.

    Raises:
        UserError: the folder cannot be created or written, or something else than a report has the name of one.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        for name in reports:
            check_report_target(folder / name)
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        reason = getattr(error, "strerror", None) or error
        shown = f", or print the run in it: robustkit show {folder}" if os.path.exists(folder / "run.sqlite") else ""
        raise UserError(f"The folder {folder} cannot be written ({reason}); give another --out{shown}.") from None


def remove_if_empty(folder: Path) -> None:
    """Remove the folder if it is empty, for example after a command that failed, and no process is at work in it."""
    with suppress(OSError, ValueError, UserError):  # ValueError: a zero byte in the path
        if folder.is_dir():
            with locked(folder):
                folder.rmdir()


def write_evaluation(run: "Run", folder: Path) -> None:
    """Write the CSV files and the HTML report of an evaluation, and print its table."""
    from robustkit.host.console import SafeConsole

    from .wings import reports

    run.write(folder)
    reports.print_table(run, SafeConsole())


def dataset_label(data: "Dataset") -> str:
    """Name and split of the data, as reports show them."""
    return f"{data.name} {data.split}".strip()


def command_line() -> str:
    """The command, quoted for a shell."""
    return shlex.join(["robustkit", *sys.argv[1:]])
