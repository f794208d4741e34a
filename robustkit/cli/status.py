"""The end of every command: its exit status, and one line for whatever escaped it.

0 done; 2 something the user can mend; 70 a bug of ours; 130 Ctrl-C. `gate` and `verify` add 1, `diagnose` 3 and 4,
which are verdicts.
"""

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

import click

from robustkit.errors import UserError
from robustkit.host.failures import as_users_error, described_error
from robustkit.host.interrupt import interrupted
from robustkit.host.streams import drop_output

from .terminal import echo, print_error

DEBUG: Final = "ROBUSTKIT_DEBUG"
MENDABLE, BUG, INTERRUPTED = 2, 70, 130


def status_of(command: Callable[[], Any]) -> int:
    """Run a command; the exit status, after one line on standard error if there is something to say."""
    try:
        status = command()
        _flush()
    except BaseException as error:
        return _explained(error)
    return status if isinstance(status, int) else 0


def _explained(error: BaseException) -> int:
    if os.environ.get(DEBUG):
        echo("".join(traceback.format_exception(error)), err=True)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        echo(error.format_message(), err=True)
        return MENDABLE
    if isinstance(error, click.ClickException):
        print_error(_of_other_commands(error) or error.format_message())
        return MENDABLE
    if isinstance(error, (KeyboardInterrupt, click.Abort)) or (interrupted() and not isinstance(error, SystemExit)):
        echo("Interrupted.", err=True)
        return INTERRUPTED
    mendable = as_users_error(error)
    if isinstance(error, SystemExit) and mendable is None:
        return _exit_status(error)
    mendable = mendable or _of_the_machine(error)
    print_error(_confession(error) if mendable is None else str(mendable))
    return BUG if mendable is None else MENDABLE


def _of_other_commands(error: click.ClickException) -> str:
    """The sentence about an option that only other commands have; "" for any other error."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    commands = getattr(error.ctx.find_root().command, "commands", {})
    names = [name for name, each in commands.items() if any(error.option_name in one.opts for one in each.params)]
    return (
        f"{error.ctx.command.name} has no option {error.option_name}; these commands have it: {', '.join(names)}."
        if names
        else ""
    )


def _exit_status(error: SystemExit) -> int:
    """The status of a command that ended itself; click ends so when the reader of its help has left."""
    if type(sys.stdout).__name__ == "_PacifyFlushWrapper":
        drop_output(sys.stdout)
        return 0
    return error.code if isinstance(error.code, int) else 0 if error.code is None else 1


def _of_the_machine(error: BaseException) -> UserError | None:
    """An error of the file system as a sentence."""
    if isinstance(error, UnicodeEncodeError) and error.encoding == sys.getfilesystemencoding() != "utf-8":
        return UserError(
            f"Names of files have no {error.object[error.start : error.end]!a} in the language settings of this system "
            f"({error.encoding}); set PYTHONUTF8=1."
        )
    if not isinstance(error, OSError):
        return None
    reason = error.strerror or (str(error) or type(error).__name__)
    if error.filename is None:
        drop_output(sys.stdout)
        return UserError(f"The output could not be written: {reason}; free some space, or write it to another place.")
    return UserError(f"{error.filename} cannot be used: {reason}; check the path, its permissions and the disk.")


def _confession(error: BaseException) -> str:
    return (
        f"This is a bug in robustkit ({described_error(error)}); set {DEBUG}=1 and run the command again to see the "
        "trace, and please report it."
    )


def _flush() -> None:
    """Write what is still in the buffers: at Python's exit an error would print a second message."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        drop_output(sys.stdout)
