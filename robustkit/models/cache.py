"""Models that were trained here, on disk: safetensors files whose header says what they are."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from robustkit.errors import UserError
from robustkit.host.files import PART, replace_file
from robustkit.limits import shortened

SUFFIX = ".safetensors"
_LETTERS = 50  # of the names of model and data set in the name of a file; the rest of it is a hash
_NAME = re.compile(r"[\w.-]+-[0-9a-f]{12}\.safetensors")  # as `path_of` makes it
_UNFINISHED = re.compile(r"\.[\w.-]+-[0-9a-f]{1,12}\.safetensors\.\w+\.part")


class CacheEntry(NamedTuple):
    """One cached model; `val_accuracy` is None if the file is broken."""

    path: Path
    model: str
    dataset: str
    bytes: int
    val_accuracy: float | None


def folder() -> Path:
    """The cache folder: `$ROBUSTKIT_CACHE/models`, or `models` in the user's cache folder.

    Raises:
        UserError: ROBUSTKIT_CACHE names the home folder of no user.
    """
    import platformdirs

    chosen = os.environ.get("ROBUSTKIT_CACHE")
    try:
        root = Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("robustkit")
    except RuntimeError:
        raise UserError(f"ROBUSTKIT_CACHE={shortened(chosen)}: there is no such user; write the whole path.") from None
    return root / "models"


def path_of(model: str, dataset: str, identity: Mapping[str, object]) -> Path:
    """The file of a model on a data set; `identity` (plain JSON) is everything else that decides its weights."""
    canonical = json.dumps({**identity, "model": model}, sort_keys=True, separators=(",", ":"))
    safe = "".join(letter if letter.isalnum() or letter in "_-." else "_" for letter in f"{model}-{dataset}")
    # File systems allow names of 255 bytes, of which a letter takes at most 4.
    return folder() / f"{safe[:_LETTERS]}-{hashlib.sha256(canonical.encode()).hexdigest()[:12]}{SUFFIX}"


def store(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write weights and header; the file is complete or not written at all.

    Raises:
        OSError: the folder cannot be written.
    """
    from safetensors.torch import save

    # Copies: safetensors refuses tensors that share their memory.
    raw = save({key: value.detach().clone().contiguous() for key, value in state.items()}, dict(metadata))
    replace_file(path, [raw])


def metadata(path: Path) -> dict[str, str] | None:
    """The header of a file, or None if it is missing or broken."""
    from safetensors import safe_open

    try:
        if not path.is_file():  # a pipe would never answer
            return None
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except Exception:  # unreadable, broken, or too large to map: not ours, whatever the reason
        return None


def has(path: Path) -> bool:
    """Whether the file of a model is there and may be looked up; an unreadable cache only means: not cached."""
    try:
        return path.is_file()
    except OSError:
        return False


def entries() -> list[CacheEntry]:
    """All cached models, by name; files that were not written here are none."""
    return [_entry(path) for path in sorted(folder().glob(f"*{SUFFIX}")) if _is_ours(path)]


def clear(name: str | None = None) -> list[Path]:
    """Delete the cached models of that name, or all; returns the deleted files."""
    deleted = [entry.path for entry in entries() if name in (None, entry.model)]
    if name is None:
        deleted += [path for path in sorted(folder().glob(f".*{PART}")) if _UNFINISHED.fullmatch(path.name)]
    for path in deleted:
        path.unlink(missing_ok=True)
    return deleted


def _is_ours(path: Path) -> bool:
    """Whether this package wrote a file: by its name and, unless it is broken, by its header."""
    if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_file():
        return False
    header = metadata(path)
    return header is None or {"model", "dataset"} <= set(header)


def _entry(path: Path) -> CacheEntry:
    header = metadata(path) or {}
    # The file name starts with the model's name, also if the header is broken.
    model = header.get("model", path.stem.split("-")[0])
    dataset = header.get("dataset", "")
    return CacheEntry(path, model, dataset, path.lstat().st_size, _number(header.get("val_accuracy")))


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
