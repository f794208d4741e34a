"""Models trained here, kept on the disk: safetensors files that say in their header what they are."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from robustkit.host.files import PART, replace_file

SUFFIX = ".safetensors"


class CacheEntry(NamedTuple):
    """One cached model; `val_accuracy` is None in a file that is broken."""

    path: Path
    model: str
    dataset: str
    bytes: int
    val_accuracy: float | None


def folder() -> Path:
    """Where the models are kept: `$ROBUSTKIT_CACHE/models`, or the user's cache folder."""
    import platformdirs

    chosen = os.environ.get("ROBUSTKIT_CACHE")
    root = Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("robustkit")
    return root / "models"


def place(model: str, dataset: str, identity: Mapping[str, object]) -> Path:
    """The file of a model on a data set that was made as `identity` (plain JSON) says."""
    canonical = json.dumps({**identity, "model": model}, sort_keys=True, separators=(",", ":"))
    safe = "".join(letter if letter.isalnum() or letter in "_-." else "_" for letter in f"{model}-{dataset}")
    return folder() / f"{safe}-{hashlib.sha256(canonical.encode()).hexdigest()[:12]}{SUFFIX}"


def store(path: Path, state: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Write the file whole or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    from safetensors.torch import save

    # Copies: safetensors refuses tensors that share their memory.
    raw = save({key: value.detach().clone().contiguous() for key, value in state.items()}, dict(about))
    replace_file(path, raw)


def about(path: Path) -> dict[str, str] | None:
    """What the header says, or None if the file is not one that `store` wrote whole."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return None


def entries() -> list[CacheEntry]:
    """All cached models, by name."""
    return [_entry(path) for path in sorted(folder().glob(f"*{SUFFIX}"))]


def clear(name: str | None = None) -> list[Path]:
    """Remove the cached models of that name, or all; the files that were removed."""
    gone = [entry.path for entry in entries() if name in (None, entry.model)]
    if name is None:
        gone += sorted(folder().glob(f".*{PART}"))
    for path in gone:
        path.unlink(missing_ok=True)
    return gone


def _entry(path: Path) -> CacheEntry:
    known = about(path) or {}
    # The name of a broken file still starts with the model's.
    model = known.get("model", path.stem.split("-")[0])
    accuracy = known.get("val_accuracy")
    dataset = known.get("dataset", "")
    return CacheEntry(path, model, dataset, path.stat().st_size, None if accuracy is None else float(accuracy))
