"""Data sets from arrays: tensors of the caller, `.npz` and `.safetensors` files with `x` and `y`."""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit.errors import UserError

from .checks import checked, named_classes
from .dataset import Origin, TensorData, Threat

THREATS = (Threat("Linf", "8/255"),)
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
    """The data set in a `.npz` or `.safetensors` file; a file is one split, called as asked."""
    arrays = _read_npz(path) if path.suffix.lower() == ".npz" else _read_safetensors(path)
    missing = [key for key in ("x", "y") if key not in arrays]
    if missing:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise UserError(
            f"{path} has no array {' and no '.join(missing)} (found: {found}); save the images as x, the labels as y."
        )
    names = arrays.get("class_names")
    listed = None if names is None else [str(name) for name in names.tolist()]
    x, y = (_tensor(arrays[key], key, path) for key in ("x", "y"))
    data = from_tensors(x, y, name=path.stem, class_names=listed, split=split)
    return replace(data, origin=Origin(str(path)))


def _read_npz(path: Path) -> dict[str, NDArray[np.generic] | Tensor]:
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError) as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"{path} holds Python objects, and reading them could run code; save plain number arrays."
            ) from error
        raise UserError(f"{path} is not a whole .npz file ({error}); save or copy it again.") from error


def _read_safetensors(path: Path) -> dict[str, NDArray[np.generic] | Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is not a whole safetensors file ({error}); save or copy it again.") from error


def _tensor(array: NDArray[np.generic] | Tensor, key: str, path: Path) -> Tensor:
    if isinstance(array, Tensor):
        return array
    if array.dtype.kind not in "biuf":
        raise UserError(f"The array {key} in {path} holds {array.dtype}, not numbers; save it as numbers.")
    # torch has no arrays in foreign byte order, and few operations for uint16 and up.
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))
