"""A run folder that appears whole or not at all, and what killed processes left of such folders."""

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from robustkit.errors import UserError
from robustkit.evidence.opening import FILE
from robustkit.host.lock import locked, nobody_locks

_FILES = {f"{FILE}{ending}" for ending in ("", "-wal", "-shm", "-journal")}


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A hidden folder beside `target` that becomes `target` when the context ends without an exception.

    Folders of killed processes that were to become `target` are removed: those with a name of this form and of this
    machine, which hold evidence and nothing else, and which no process locks.

    Raises:
        UserError: another process has made `target` meanwhile.
        OSError: it cannot be made or renamed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    part = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    try:
        with locked(part):
            yield part
            os.chmod(part, 0o755)
            _rename(part, target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _rename(part: Path, target: Path) -> None:
    try:
        os.rename(part, target)
    except OSError:
        if not target.exists():
            raise
        raise UserError(f"{target} was made by another process meanwhile, and is kept; give another --out.") from None


def _prefix(target: Path) -> str:
    # A lock says nothing about processes of another machine, where file systems are shared without locks.
    machine = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
    return f".{target.name}.merge-{machine}-"


def _remove_abandoned(target: Path) -> None:
    prefix = _prefix(target)
    for folder in [each for each in target.parent.iterdir() if each.name.startswith(prefix)]:
        with suppress(OSError):
            if not folder.is_symlink() and _holds_only_evidence(folder) and nobody_locks(folder):
                shutil.rmtree(folder)


def _holds_only_evidence(folder: Path) -> bool:
    """Whether there is evidence and nothing else; an empty folder may be that of a process before it locks it."""
    entries = list(folder.iterdir())
    return bool(entries) and all(each.name in _FILES and each.is_file() and not each.is_symlink() for each in entries)
