"""Data sets from arrays: tensors of the caller, `.npz` and `.safetensors` files.

A file has images `x` and labels `y`, which are one split; or `x_train`, `y_train`, `x_test`, `y_test` and so on.
"""

import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit.errors import UserError

from .checks import checked, named_classes
from .dataset import DatasetOrigin, TensorData, UsualThreat

Read = Callable[[str], Any]

THREATS = (UsualThreat("Linf", "8/255"),)
SUFFIXES = (".npz", ".safetensors")


def from_tensors(
    x: Tensor, y: Tensor, *, name: str = "tensors", class_names: Sequence[str] | None = None, split: str = "test"
) -> TensorData:
    """A data set of these images and labels, checked.

    Args:
        x: `[N, C, H, W]` in [0, 1], or uint8 (also `[N, H, W, C]` with 1 or 3 channels, or `[N, H, W]`).
        y: `[N]` integers, 0 or more.
        name: What reports call it.
        class_names: One for each class; else "0", "1", ...
        split: What reports call this part of it.

    Raises:
        UserError: an image or a label is not as it should be; the sentence names the first.
    """
    pair = checked(x.detach().cpu(), y.detach().cpu(), name)
    names = named_classes(None if class_names is None else tuple(class_names), pair.y, name)
    return TensorData(name, split, names, THREATS, pair.x, pair.y)


def load_arrays(path: Path, split: str) -> TensorData:
    """The data set in a `.npz` or `.safetensors` file; a file with `x` and `y` alone is one split, called as asked.

    Raises:
        UserError: the file is broken, or has no such arrays; the sentence names them.
    """
    names, read = _npz(path) if path.suffix.lower() == ".npz" else _safetensors(path)
    splits = tuple(sorted(name[2:] for name in names if name.startswith("x_") and f"y_{name[2:]}" in names))
    if splits and split not in splits and "x" not in names:
        raise UserError(f"{path} has no arrays for a split called {split!r}; there are {', '.join(splits)}.")
    x_name, y_name = (f"x_{split}", f"y_{split}") if split in splits else ("x", "y")
    missing = [key for key in (x_name, y_name) if key not in names]
    if missing:
        found = ", ".join(sorted(names)) or "nothing"
        raise UserError(
            f"{path} has no array {' and no '.join(missing)} (found: {found}); save the images as x and the labels as "
            "y, or those of each split as x_train, y_train, x_test, y_test."
        )
    listed = [str(name) for name in read("class_names").tolist()] if "class_names" in names else None
    x, y = (_tensor(read(key), key, path) for key in (x_name, y_name))
    data = from_tensors(x, y, name=path.stem, class_names=listed, split=split)
    return replace(data, origin=DatasetOrigin(str(path), splits=splits))


def _npz(path: Path) -> tuple[list[str], Read]:
    def read(key: str) -> NDArray[np.generic]:
        with _readable(path), np.load(path, allow_pickle=False) as file:
            return file[key]  # type: ignore[no-any-return]

    with _readable(path), zipfile.ZipFile(path), np.load(path, allow_pickle=False) as file:
        return list(file.files), read


def _safetensors(path: Path) -> tuple[list[str], Read]:
    from safetensors import safe_open

    def read(key: str) -> Tensor:
        with _readable(path), safe_open(path, "pt") as file:
            return file.get_tensor(key)  # type: ignore[no-any-return]

    with _readable(path), safe_open(path, "pt") as file:
        return list(file.keys()), read


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say of a file that cannot be read what is wrong with it."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, SafetensorError) as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"{path} holds Python objects, and reading them could run code; save plain number arrays."
            ) from error
        kind = path.suffix.lower()
        raise UserError(f"{path} is not a whole {kind} file ({error}); save or copy it again.") from error


def _tensor(array: NDArray[np.generic] | Tensor, key: str, path: Path) -> Tensor:
    if isinstance(array, Tensor):
        return array
    if array.dtype.kind not in "biuf":
        raise UserError(f"The array {key} in {path} holds {array.dtype}, not numbers; save it as numbers.")
    # torch has no arrays in foreign byte order, and few operations for uint16 and up.
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
