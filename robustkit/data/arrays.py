"""Data sets from arrays: the caller's tensors, `.npz` files and `.safetensors` files.

A file with images `x` and labels `y` is one split; a file with several splits has `x_train`, `y_train`, `x_test` etc.
"""

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError
from robustkit.host.arguments import checked_arguments
from robustkit.limits import shortened

from .array_sizes import check_member, check_size
from .checks import checked_class_names, checked_images
from .dataset import DatasetOrigin, TensorData, UsualThreat

Read = Callable[[str], Any]

THREATS = (UsualThreat("Linf", "8/255"),)
SUFFIXES = (".npz", ".safetensors")
_TO_NUMBERS = "class_names, y = np.unique(labels.astype(str), return_inverse=True)"  # of labels that are words
_FLOAT_BYTES = 4  # images become float32, whatever they are stored as


@checked_arguments
def from_tensors(
    x: Tensor, y: Tensor, *, name: str = "tensors", class_names: Sequence[str] | None = None, split: str = "test"
) -> TensorData:
    """A data set of these images and labels, which are checked first.

    Args:
        x: `[N, C, H, W]` in [0, 1], or uint8 (also `[N, H, W, C]` with 1 or 3 channels, or `[N, H, W]`).
        y: `[N]` integers, 0 or more.
        name: What reports call it.
        class_names: One for each class; by default "0", "1", ...
        split: What reports call this split.

    Raises:
        UserError: an image or a label is invalid; the message names the first one.
    """
    images = checked_images(x.detach(), y.detach(), name)
    names = checked_class_names(None if class_names is None else tuple(class_names), images.y, name)
    return TensorData(name, split, names, THREATS, images.x, images.y)


def load_arrays(path: Path, split: str) -> TensorData:
    """The data set in a `.npz` or `.safetensors` file; a file with only `x` and `y` is the split "test".

    Raises:
        UserError: the file is broken, or an array is missing; the message names it.
    """
    names, read = _opened(path)
    splits = tuple(sorted(name[2:] for name in names if name.startswith("x_") and f"y_{name[2:]}" in names))
    if splits and split not in splits and "x" not in names:
        listed = shortened(", ".join(splits))
        raise UserError(f"{shortened(path)} has no arrays for a split called {split!r}; there are {listed}.")
    if split not in (*splits, "test"):
        raise UserError(
            f"{shortened(path)} has no arrays x_{split} and y_{split}; leave out the split to use its arrays x and y."
        )
    if splits and {"x", "y"} <= set(names):
        raise UserError(
            f"{shortened(path)} has arrays x and y, and x_{splits[0]} and y_{splits[0]}, too; save splits in one file, "
            "or x and y alone."
        )
    x_name, y_name = (f"x_{split}", f"y_{split}") if split in splits else ("x", "y")
    missing = [key for key in (x_name, y_name) if key not in names]
    if missing:
        listed = shortened(", ".join(sorted(names))) or "nothing"
        raise UserError(
            f"{shortened(path)} has no array {' and no '.join(missing)} (it has: {listed}); save the images as x and "
            "the labels as y, or those of each split as x_train, y_train, x_test, y_test."
        )
    class_names = _class_names(read("class_names"), path) if "class_names" in names else None
    x, y = (_tensor(read(key), key, path) for key in (x_name, y_name))
    data = from_tensors(x, y, name=path.stem, class_names=class_names, split=split)
    return replace(data, origin=DatasetOrigin(str(path), splits=splits))


def load_images(path: Path) -> TensorData:
    """The images `x` of a file without labels: each gets the label 0, and there are no class names.

    Raises:
        UserError: the file is broken, or has no array `x`.
    """
    names, read = _opened(path)
    if "x" not in names:
        raise UserError(f"{shortened(path)} has no array x; save the images as x, and their labels, if any, as y.")
    x = _tensor(read("x"), "x", path)
    data = from_tensors(x, torch.zeros(len(x) if x.ndim else 0, dtype=torch.int64, device="cpu"), name=path.stem)
    return replace(data, class_names=())


def is_labelled(path: Path) -> bool:
    """Whether a file of arrays has labels.

    Raises:
        UserError: the file is broken.
    """
    names, _ = _opened(path)
    return any(name == "y" or name.startswith("y_") for name in names)


def read_arrays(path: Path) -> tuple[list[str], Callable[[str], Tensor]]:
    """The names of the arrays in a `.npz` or `.safetensors` file, and what reads one of them.

    Raises:
        UserError: the file is broken, or what is read is no array of numbers.
    """
    names, read = _opened(path)
    return names, lambda key: _tensor(read(key), key, path)


def _opened(path: Path) -> tuple[list[str], Read]:
    return _npz(path) if path.suffix.lower() == ".npz" else _safetensors(path)


def _npz(path: Path) -> tuple[list[str], Read]:
    def read(key: str) -> NDArray[np.generic]:
        with _readable(path), zipfile.ZipFile(path) as archive:
            check_member(archive, key, path)
        with _readable(path), np.load(path, allow_pickle=False) as file:
            return file[key]  # type: ignore[no-any-return]

    with _readable(path), zipfile.ZipFile(path), np.load(path, allow_pickle=False) as file:
        return list(file.files), read


def _safetensors(path: Path) -> tuple[list[str], Read]:
    from safetensors import safe_open

    def read(key: str) -> Tensor:
        with _readable(path), safe_open(path, "pt") as file:
            check_size(file.get_slice(key).get_shape(), _FLOAT_BYTES, key, path)
            return file.get_tensor(key)  # type: ignore[no-any-return]

    with _readable(path), safe_open(path, "pt") as file:
        return list(file.keys()), read


def _class_names(array: NDArray[np.generic] | Tensor, path: Path) -> list[str]:
    if array.ndim != 1 or array.shape[0] > limits.CLASSES:
        raise UserError(
            f"The array class_names in {shortened(path)} has the shape {shortened(list(array.shape))}; "
            f"save one name per class, and at most {limits.CLASSES:,}."
        )
    with _readable(path):  # letters beyond Unicode
        names = [str(name) for name in array.tolist()]
    if max(map(len, names), default=0) > limits.CLASS_NAME:
        raise UserError(f"A class name in {shortened(path)} has more than {limits.CLASS_NAME} letters; shorten it.")
    return names


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into a `UserError` that names the file and the reason."""
    try:
        yield
    except UserError:
        raise
    except PermissionError as error:
        raise UserError(f"{shortened(path)} cannot be read ({error.strerror}); check its permissions.") from error
    except Exception as error:  # broken archives make zipfile, zlib and numpy raise almost anything
        if "allow_pickle" in str(error):
            raise UserError(
                f"{shortened(path)} contains Python objects, and reading them could run code; save plain number arrays "
                f"(of labels that are words: {_TO_NUMBERS})."
            ) from error
        kind, reason = path.suffix.lower(), shortened(str(error) or type(error).__name__)
        raise UserError(f"{shortened(path)} is not a whole {kind} file ({reason}); save or copy it again.") from error


def _tensor(array: NDArray[np.generic] | Tensor, key: str, path: Path) -> Tensor:
    if isinstance(array, Tensor):
        return array
    if key.startswith("y") and array.dtype.kind in "US":
        raise UserError(
            f"The labels {shortened(key)} in {shortened(path)} are text; save them as numbers, with their names: "
            f"{_TO_NUMBERS}."
        )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise UserError(
            f"The array {shortened(key)} in {shortened(path)} has the type {shortened(array.dtype)}, not numbers of at "
            "most 64 bits; save it as those."
        )
    if key.startswith("x") and array.dtype.kind == "u" and array.dtype.itemsize > 1:
        raise UserError(
            f"The images {shortened(key)} of {shortened(path)} must be floats in [0, 1] or uint8, not {array.dtype}."
        )
    # torch has no arrays in another byte order, and few operations for uint16 and larger.
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="), copy=False)))
