"""One process at work in a folder: a lock that the system releases when the process ends, however it ends."""

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from robustkit.errors import UserError
from robustkit.host.files import PART

_LETTERS = 50  # of a name; in UTF-8 at most 200 bytes, and file systems allow 255 with the rest
_HELD: dict[Path, int] = {}  # folders locked by this process, each with the thread that may lock it again


@contextmanager
def locked(folder: Path, named: Path | None = None) -> Iterator[None]:
    """A context in which no other process holds the lock of `folder`; a folder that is created here and stays empty
    is removed.

    On Windows, and on file systems without locks, nothing is locked.

    Args:
        folder: what is locked.
        named: what errors call it.

    Raises:
        UserError: the folder is locked already, or it cannot be created.
    """
    named = folder if named is None else named
    try:
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
    except OSError as error:
        raise UserError(f"The folder {named} cannot be written ({error.strerror}); give another --out.") from None
    if _HELD.get(place) == threading.get_ident():
        yield
        return
    if place in _HELD:
        raise _at_work(named)
    handle = _lock(place, named)
    _HELD[place] = threading.get_ident()
    try:
        yield
    finally:
        del _HELD[place]
        if handle is not None:
            os.close(handle)
        if new:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """A context in which no other process claims `out`, which need not exist.

    A hidden folder beside it is locked; after a kill it stays, and the next claim removes it.

    Raises:
        UserError: `out` is claimed already, or the folder cannot be created.
    """
    digest = hashlib.sha256(os.fsencode(out.name)).hexdigest()[:8]
    place = out.with_name(f".{out.name[:_LETTERS]}.{digest}{PART}")
    with locked(place, out):
        try:
            yield
        finally:
            with suppress(OSError):
                place.rmdir()


def nobody_locks(folder: Path) -> bool:
    """Whether it is certain that no process holds the lock of a folder."""
    try:
        handle = _lock(folder, folder)
    except (UserError, OSError):
        return False
    if handle is None:
        return False
    os.close(handle)
    return True


def _lock(place: Path, folder: Path) -> int | None:
    """The open folder, locked until it is closed."""
    try:
        import fcntl
    except ImportError:
        return None
    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise _at_work(folder) from None
    except OSError:
        os.close(handle)
        return None
    return handle


def _at_work(folder: Path) -> UserError:
    return UserError(f"Another robustkit process is at work in {folder}; wait for it, or give another --out.")
