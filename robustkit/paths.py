"""Paths that a user gives, checked once: a name that the system cannot look up is one clear line."""

from pathlib import Path

from robustkit.errors import UserError
from robustkit.limits import shortened


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
