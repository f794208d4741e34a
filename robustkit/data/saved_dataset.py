"""Data sets of Hugging Face's library `datasets`: a folder of `save_to_disk`, or an object of Python.

The library opens the tables. Pictures are decoded here from the bytes in them: its own decoder follows paths and
addresses that the table names. Nothing is downloaded, and no code of a data set is run.
"""

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened

from .arrays import THREATS
from .checks import checked_class_names, empty
from .dataset import DatasetOrigin
from .decoding import PictureReader
from .pictures import LazyData, decode

_TABLE, _SEVERAL, _STATE = "dataset_info.json", "dataset_dict.json", "state.json"
_TYPES = {"Image", "ClassLabel", "Value", "Sequence", "LargeList", "List", "Array2D", "Array3D", "Array4D", "Array5D"}
_TEXTS = ("string", "large_string")
_ALIASES = {"val": "validation", "validation": "val"}


@dataclass(frozen=True)
class TablePictures:
    """Pictures in a column of a table, read when they are asked for."""

    table: Any  # a datasets.Dataset whose pictures are not decoded
    column: str
    labels: tuple[int, ...]
    reader: PictureReader

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        """The picture, `[C, H, W]` float32 in [0, 1], and its label."""
        cell = self.table[number][self.column]
        place = f"Image {number} of the table"
        if cell is None:
            raise UserError(f"{place} is empty; leave such rows out (filter).")
        content = cell.get("bytes") if isinstance(cell, Mapping) else None
        if not isinstance(content, bytes):
            raise UserError(f"{place} is only a path; save the table with save_to_disk, which stores the images.")
        if len(content) > limits.PICTURE_BYTES:
            raise UserError(f"{place} has {len(content):,} bytes; at most {limits.PICTURE_BYTES:,} are read.")
        return self.reader.read(io.BytesIO(content), place), self.labels[number]


def is_saved_dataset(path: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return (path / _SEVERAL).is_file() or ((path / _TABLE).is_file() and (path / _STATE).is_file())


def load_saved_dataset(path: Path, split: str, reader: PictureReader) -> LazyData:
    """The pictures with labels of a folder of `save_to_disk`, of one split or of several.

    Raises:
        UserError: the library is missing, or the folder is broken or holds no pictures with labels.
    """
    splits = _splits(path)
    if not splits and split != "test":
        raise UserError(f"{shortened(path)} is one split; leave out --split, or save a DatasetDict.")
    chosen = next((name for name in (split, _ALIASES.get(split)) if name in splits), None)
    if splits and chosen is None:
        raise UserError(f"{shortened(path)} has no split called {split!r}; there are {shortened(', '.join(splits))}.")
    folder = path if chosen is None else path / chosen
    _check_description(folder)
    library = _library()
    if _json(folder / _STATE).get("_data_files") == []:  # which the library cannot open
        raise empty(shortened(path.resolve().name))
    try:
        table = library.load_from_disk(str(folder), keep_in_memory=False)
    except Exception as error:  # the library and its tables raise almost anything
        raise _not_whole(folder, error) from error
    origin = DatasetOrigin(str(path), image_size=reader.resize, splits=splits, gray=reader.gray)
    return _of_table(table, path.resolve().name, split, reader, origin)


def is_table(data: object) -> bool:
    """Whether an object is a data set of the library `datasets`, which is not imported for it."""
    return type(data).__module__.partition(".")[0] == "datasets" and type(data).__name__ == "Dataset"


def from_table(table: Any) -> LazyData:
    """A `datasets.Dataset` as a data set of ours.

    Raises:
        UserError: it holds no pictures with labels, or has a transform of its own, which would not be run.
    """
    if (table.format or {}).get("type") == "custom":
        raise UserError(
            "This data set has a transform (set_transform), and images are read as they are stored; take it off "
            "(reset_format), or give a list or a torch data set of (image, label) that uses it."
        )
    title, split = str(table.info.dataset_name or "dataset"), str(table.split or "test")
    return _of_table(table, title, split, PictureReader(), None)


def _of_table(table: Any, name: str, split: str, reader: PictureReader, origin: DatasetOrigin | None) -> LazyData:
    library = _library()
    features = table.features
    picture = _column(name, features, library.Image, ("image", "img"), "images")
    label = _column(name, features, library.ClassLabel, ("label", "labels"), "labels")
    if not len(table):
        raise empty(shortened(name))
    if str(getattr(features[label], "dtype", "")) in _TEXTS:
        raise UserError(
            f"The labels of {shortened(name)}, its column {shortened(label)!r}, are texts; number them: "
            f"class_encode_column({shortened(label)!r}), and save the data set again."
        )
    try:
        plain = table.with_format(None).select_columns([picture, label])
        plain = plain.cast_column(picture, library.Image(decode=False))
        labels = plain[label][:]
        missing = next((number for number, each in enumerate(labels) if each is None), None)
        numbers = torch.tensor([0 if each is None else each for each in labels], dtype=torch.float64, device="cpu")
    except Exception as error:  # labels that are no numbers, a table that is cut off
        raise _not_whole(Path(name), error) from error
    if numbers.dim() != 1:
        raise UserError(f"Labels of {shortened(name)} must be one number for each image, not lists; choose one column.")
    if missing is not None:
        raise UserError(f"Image {missing} of {shortened(name)} has no label; leave such rows out (filter).")
    broken = (numbers != numbers.trunc()).nonzero().flatten()
    if len(broken):
        raise UserError(
            f"Labels of {shortened(name)} must be whole numbers; image {int(broken[0])} has "
            f"{float(numbers[broken[0]]):g}."
        )
    y = numbers.to(torch.int64)
    bad = ((y < 0) | (y >= limits.CLASSES)).nonzero().flatten()
    if len(bad):
        raise UserError(f"Labels of {shortened(name)} must be 0 or more; image {int(bad[0])} has {int(y[bad[0]])}.")
    given = getattr(features[label], "names", None)
    classes = checked_class_names(None if given is None else tuple(map(str, given)), y, shortened(name))
    items = TablePictures(plain, picture, tuple(y.tolist()), reader)
    shape = tuple(decode(items, 0, f"The first image of {shortened(name)}").shape)
    return LazyData(shortened(name), split, classes, THREATS, items, y, shape, None, origin)


def _column(name: str, features: Mapping[str, Any], kind: type, usual: tuple[str, ...], what: str) -> str:
    """The column of pictures or of labels: the only one of its kind, else the one with a usual name."""
    of_kind = [column for column, feature in features.items() if isinstance(feature, kind)]
    named = [column for column in usual if column in features and (what == "labels" or column in of_kind)]
    candidates = named or of_kind
    other = next((column for column in usual if column in features), None)
    if not candidates and other is not None:
        raise UserError(
            f"The column {other!r} of {shortened(name)} is of the kind {type(features[other]).__name__}, and {what} "
            f"are {kind.__name__}; store images in it, or give robustkit.evaluate arrays (x, y)."
        )
    if not candidates or (len(candidates) > 1 and not named):
        raise UserError(
            f"{shortened(name)} has {len(of_kind)} columns of {what} ({shortened(', '.join(of_kind or features))}); "
            f"rename the right one to {usual[0]!r} (rename_column)."
        )
    return candidates[0]


def _splits(path: Path) -> tuple[str, ...]:
    if not (path / _SEVERAL).is_file():
        return ()
    names = _json(path / _SEVERAL).get("splits")
    if not isinstance(names, list) or not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise UserError(f"{shortened(path / _SEVERAL)} does not list splits; save the data set again.")
    return tuple(names)


def _check_description(folder: Path) -> None:
    """Refuse columns of kinds that are neither pictures nor numbers, and tables outside of the folder."""
    for kind in _kinds(_json(folder / _TABLE).get("features")):
        if kind not in _TYPES:
            raise UserError(f"{shortened(folder)} has a column of the unknown kind {shortened(kind)}; drop it.")
    files = _json(folder / _STATE).get("_data_files")
    names = [entry.get("filename") for entry in files if isinstance(entry, dict)] if isinstance(files, list) else [None]
    if not all(isinstance(name, str) and Path(name).name == name for name in names):
        raise UserError(f"{shortened(folder / _STATE)} names tables outside of its folder; save the data set again.")


def _kinds(entry: Any) -> Iterable[str]:
    """The kinds of all columns, and of what they hold."""
    if isinstance(entry, dict):
        if isinstance(entry.get("_type"), str):
            yield entry["_type"]
        for each in entry.values():
            yield from _kinds(each)
    elif isinstance(entry, list):
        for each in entry:
            yield from _kinds(each)


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > limits.CODE_BYTES:
            raise ValueError(f"more than {limits.CODE_BYTES:,} bytes")
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _not_whole(path, error) from None
    if not isinstance(content, dict):
        raise _not_whole(path, ValueError("no table of names"))
    return content


def _not_whole(path: Path, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or (str(error) or type(error).__name__).split("\n")[0].rstrip(".")
    return UserError(f"{shortened(path)} cannot be read ({shortened(reason)}); save the data set again.")


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            "A folder of save_to_disk needs the library datasets; install it: pip install datasets."
        ) from error
    return datasets
