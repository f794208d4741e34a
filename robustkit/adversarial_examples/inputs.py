"""The images that a user wants attacked: picture files, folders of pictures, or one file of arrays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from robustkit import limits
from robustkit.data import Dataset, LazyData
from robustkit.data.arrays import SUFFIXES, is_labelled, load_arrays, load_images
from robustkit.data.decoding import Decoder, PictureReader
from robustkit.data.picture_files import find_pictures, folders_in, pictures_in
from robustkit.data.pictures import decode
from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path

from .class_names import ClassNames
from .known_images import KnownImages

NAME = "these images"


class PictureList(NamedTuple):
    """Picture files, each with the name of its class's folder and all such folders beside it."""

    files: tuple[Path, ...]
    folders: tuple[tuple[str, tuple[str, ...]] | None, ...]

    def labels(self, classes: ClassNames) -> list[int | None]:
        """The class of each picture's folder; None for pictures that are in none.

        Raises:
            UserError: a folder is no class of the model.
        """
        numbers = {names: classes.of_folders(names) for names in {entry[1] for entry in self.folders if entry}}
        return [entry and numbers[entry[1]][entry[1].index(entry[0])] for entry in self.folders]


class ArrayFile(NamedTuple):
    """Images of a file of arrays."""

    data: Dataset
    labelled: bool


def is_arrays(paths: Sequence[Path]) -> bool:
    """Whether the images are arrays in a file.

    Raises:
        UserError: arrays and other inputs are mixed.
    """
    arrays = [path for path in paths if path.suffix.lower() in SUFFIXES]
    if arrays and len(paths) > 1:
        raise UserError(f"{shortened(arrays[0])} holds arrays; attack it alone, in a command of its own.")
    return bool(arrays)


def array_file(path: Path) -> ArrayFile:
    """The images of a `.npz` or `.safetensors` file with `x`, and perhaps `y`.

    Raises:
        UserError: there is no such file, or it is broken.
    """
    path = _existing(path)
    labelled = is_labelled(path)
    return ArrayFile(load_arrays(path, "test") if labelled else load_images(path), labelled)


def picture_list(paths: Sequence[Path]) -> PictureList:
    """The picture files that are named, and those of the folders that are named, each once.

    Raises:
        UserError: one does not exist, or a folder holds no pictures.
    """
    found: dict[Path, tuple[str, tuple[str, ...]] | None] = {}
    for given in paths:
        path = _existing(given)
        if path.is_dir():
            found |= _of_folder(path)
        elif path.is_file():
            found.setdefault(path, None)
        else:
            raise UserError(f"{shortened(path)} is not a regular file; name image files, or a folder of them.")
    return PictureList(tuple(found), tuple(found.values()))


def pictures(files: tuple[Path, ...], known: KnownImages, mode: Literal["RGB", "L"]) -> LazyData:
    """The pictures as images of the model's size; each is decoded when it is needed.

    Raises:
        UserError: the first one cannot be decoded.
    """
    for what, value in (("image_size", known.resize), ("image_size", known.crop)):
        limits.require_at_most(what, value or 1, limits.IMAGE_SIDE)
    decoder = Decoder(files, (0,) * len(files), PictureReader(known.resize, known.crop, mode))
    shape = tuple(decode(decoder, 0, shortened(files[0])).shape)
    labels = torch.zeros(len(files), dtype=torch.int64, device="cpu")
    return LazyData(NAME, "", known.class_names, known.threats, decoder, labels, shape, files)


def require_readable(data: LazyData) -> None:
    """Decode each picture once, so that a broken one is an error before the attack and not during it.

    Raises:
        UserError: one cannot be decoded, has another size, or has several frames.
    """
    for number in range(len(data)):
        data.batch([number])


def _of_folder(folder: Path) -> dict[Path, tuple[str, tuple[str, ...]] | None]:
    loose = pictures_in(folder)
    if not loose:
        if not folders_in(folder):
            raise UserError(f"There is no image file in the folder {shortened(folder)}.")
        found = find_pictures(folder, allow_empty=True)
        return {file: (found.classes[label], found.classes) for file, label in zip(*found[1:], strict=True)}
    held = [name for name in folders_in(folder) if pictures_in(folder / name)]
    if held:
        raise UserError(
            f"{shortened(folder)} has images both in itself and in its sub-folder {shortened(held[0])}; name the "
            "files, or one of the folders."
        )
    return dict.fromkeys(loose)


def _existing(path: Path) -> Path:
    path = user_path(path)
    if not path.exists():
        raise no_file(f"There is no file or folder {shortened(path)}", path, "check the path of the images")
    return path
