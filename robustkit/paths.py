"""Paths that a user gives: a name that cannot be looked up, and one that stands for no file, are one clear line."""

import difflib
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path

from robustkit.errors import UserError
from robustkit.limits import shortened

_MOST_NEIGHBOURS = 10_000  # entries of a folder among which a misspelt one is looked for
_KINDS = (
    (stat.S_ISREG, "a regular file"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


def user_path(text: str | Path) -> Path:
    """The path, with `~` replaced by the home folder. There need not be a file.

    Raises:
        UserError: there is no such home folder, the name is too long or contains a zero, a folder on the way may not be
            read, or links lead in a circle.
    """
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise UserError(f"{shortened(text)} begins with ~, and there is no such user; write the whole path.") from None
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"The path {shortened(path)} cannot be used ({reason}); check it and its permissions."
        ) from None
    return path


def no_file(text: str, path: Path, fix: str) -> UserError:
    """The error for a missing file: `text`, then the entries of its folder that are spelt like it, else the fix.

    Where something else has that name, such as a pipe or a folder, the error says so.
    """
    kind = kind_of(path)
    if kind not in (None, "a regular file"):
        return UserError(f"{shortened(path)} is {kind}, which is not read; {fix}.")
    near = " or ".join(neighbours(path))
    return UserError(f"{text}; did you mean {near}?" if near else f"{text}; {fix}.")


def kind_of(path: Path) -> str | None:
    """What there is under a name, such as "a pipe"; None for nothing. Links are followed."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return "a link to nothing" if path.is_symlink() else None
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "a device")


def neighbours(path: Path) -> list[str]:
    """Up to three entries of the folder of `path` whose names are almost its own."""
    names: list[str] = []
    with suppress(OSError, ValueError):
        names = [entry.name for entry in islice(path.parent.iterdir(), _MOST_NEIGHBOURS)]
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.75)
    return [str(path.with_name(name)) for name in near]
