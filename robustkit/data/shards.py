"""Data sets in tar files, as WebDataset writes them: `KEY.jpg` beside `KEY.cls`, which holds the label as text.

Pictures are read from their places in the tars when they are needed. The package webdataset would stream, run commands
(`pipe:`) and unpickle; an evaluation needs numbered images instead.
"""

import io
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path

from .checks import checked_class_names
from .dataset import DatasetOrigin, UsualThreat
from .decoding import PictureReader
from .pictures import LazyData, decode, read_file
from .tar_samples import TarMember, place_of, samples_of

SUFFIX = ".tar"
THREATS = (UsualThreat("Linf", "8/255"),)
_SPLIT_WORDS = {"train", "val", "validation", "test"}
_RANGE = re.compile(r"(.*)\{(\d{1,9})\.\.(\d{1,9})\}([^{}]*\.tar)")  # "test-{000..004}.tar"


@dataclass(frozen=True)
class ShardedPictures:
    """Pictures in tar files, read when they are asked for."""

    pictures: tuple[TarMember, ...]
    labels: tuple[int, ...]
    reader: PictureReader

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        """The picture, `[C, H, W]` float32 in [0, 1], and its label."""
        member = self.pictures[number]
        with member.shard.open("rb") as file:
            file.seek(member.offset)
            content = io.BytesIO(file.read(member.size))
        return self.reader.read(content, place_of(member)), self.labels[number]


def is_sharded(name: str) -> bool:
    """Whether a name is a tar file, a range of them, or a folder with some in it or below it."""
    if _RANGE.fullmatch(name) or name.lower().endswith(SUFFIX):
        return True
    path = user_path(name)
    return path.is_dir() and any(_tars(folder) for folder in (path, *_folders(path)))


def load_shards(name: str, split: str, reader: PictureReader) -> LazyData:
    """The pictures with labels in a tar file, in `test-{000..004}.tar`, or in the tar files of a folder.

    A folder may have a sub-folder for each split, or tar files whose names contain the split. A file `classnames.txt`
    beside the tar files names the classes, one in each line.

    Raises:
        UserError: there are none, one is broken or packed, or a sample has no picture or no label.
    """
    files = _files(name, split)
    pictures: list[TarMember] = []
    labels: list[int] = []
    for file in files:
        for picture, label in samples_of(file):
            pictures.append(picture)
            labels.append(label)
        limits.require_at_most(f"The number of images of {shortened(name)}", len(pictures), limits.PICTURES)
    if not pictures:
        raise UserError(f"{shortened(name)} has no images; each needs a label beside it, as KEY.jpg and KEY.cls.")
    y = torch.tensor(labels, dtype=torch.int64, device="cpu")
    classes = checked_class_names(_class_names(files[0].parent), y, shortened(name))
    items = ShardedPictures(tuple(pictures), tuple(labels), reader)
    shape = tuple(decode(items, 0, place_of(pictures[0])).shape)
    title = user_path(name).resolve().stem if not _RANGE.fullmatch(name) else files[0].resolve().parent.name
    origin = DatasetOrigin(name, image_size=reader.resize, splits=_splits(name), gray=reader.gray)
    return LazyData(title, split, classes, THREATS, items, y, shape, None, origin)


def _files(name: str, split: str) -> list[Path]:
    """The tar files of a split."""
    numbered = _RANGE.fullmatch(name)
    if numbered:
        files = _numbered(*numbered.groups())
    elif (path := user_path(name)).is_dir():
        return _of_split(path, split)
    else:
        files = [path]
    for file in files:
        if not file.is_file():
            raise no_file(f"There is no file {shortened(file)}", file, "check the path of the data set")
    if split != "test":
        raise UserError(f"{shortened(name)} is one split; leave out --split, or pass a folder with tar files of it.")
    return files


def _numbered(before: str, first: str, last: str, after: str) -> list[Path]:
    if int(last) - int(first) >= limits.SHARDS or int(last) < int(first):
        raise UserError(f"{{{first}..{last}}} must be a range of 1 to {limits.SHARDS:,} files.")
    return [user_path(f"{before}{number:0{len(first)}}{after}") for number in range(int(first), int(last) + 1)]


def _of_split(path: Path, split: str) -> list[Path]:
    if _tars(path / split):
        return _tars(path / split)
    named = [file for file in _tars(path) if split in _words(file)]
    if named:
        return named
    splits = _splits(str(path))
    if splits or split != "test":
        listed = ", ".join(splits) or "only one for all files"
        raise UserError(f"{shortened(path)} has no split called {split!r}; there are {shortened(listed)}.")
    return _tars(path)


def _splits(name: str) -> tuple[str, ...]:
    """The splits of a folder: sub-folders with tar files, else the words in the names of its own."""
    path = Path() if _RANGE.fullmatch(name) else user_path(name)
    if not path.is_dir() or _RANGE.fullmatch(name):
        return ()
    folders = [folder.name for folder in _folders(path) if _tars(folder)]
    return tuple(sorted(folders or {word for file in _tars(path) for word in _words(file) & _SPLIT_WORDS}))


def _words(file: Path) -> set[str]:
    return set(re.split(r"[^a-z]+", file.stem.lower()))


def _tars(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix.lower() == SUFFIX and file.is_file())
    except OSError:
        return []


def _folders(path: Path) -> list[Path]:
    try:
        return [path / name for name in _SPLIT_WORDS if (path / name).is_dir()]
    except OSError:
        return []


def _class_names(folder: Path) -> tuple[str, ...] | None:
    path = folder / "classnames.txt"
    if not path.is_file():
        return None
    if path.stat().st_size > limits.TABLE_BYTES:
        raise UserError(f"{shortened(path)} has more than {limits.TABLE_BYTES:,} bytes; write one class in each line.")
    names = tuple(line.strip() for line in read_file(path).decode("utf-8", "replace").rstrip().splitlines())
    if "" in names:
        raise UserError(
            f"Line {names.index('') + 1} of {shortened(path)} is empty, but each line names a class; write a name."
        )
    if max(map(len, names), default=0) > limits.CLASS_NAME or len(names) > limits.CLASSES:
        raise UserError(f"{shortened(path)} has too many or too long names; write one class in each line.")
    return names
