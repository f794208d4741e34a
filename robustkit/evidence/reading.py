"""Read a run folder."""

from pathlib import Path

from robustkit.errors import UserError
from robustkit.evidence.opening import another_version
from robustkit.evidence.run import Run
from robustkit.evidence.store import SCHEMA, Store
from robustkit.evidence.tables import summarised
from robustkit.host.arguments import checked_arguments
from robustkit.paths import user_path


@checked_arguments
def load_run(folder: str | Path) -> Run:
    """A finished or unfinished run, read from its folder.

    Raises:
        UserError: the folder has no evidence, it was written by another version, or another process writes to it.
    """
    path = user_path(folder)
    if path.name in ("", ".."):  # the current folder has a name, too
        path = path.resolve()
    store = Store(path, reading=True)
    try:
        identity = None if store.blank else store.manifest().get("identity")
        if identity is None:
            raise UserError(f"{path} holds no evidence yet; repeat the command that made it.")
        if identity["schema"] != SCHEMA:
            raise another_version(path)
        return summarised(store, path)
    finally:
        store.close()
