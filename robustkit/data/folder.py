"""Data sets from folders of pictures with one sub-folder per class; ImageNet is such a folder."""

from pathlib import Path

import torch

from robustkit.errors import UserError
from robustkit.limits import shortened
from robustkit.paths import user_path

from .dataset import DatasetOrigin, UsualThreat
from .decoding import Decoder, PictureReader
from .picture_files import find_pictures, folders_in, listed
from .pictures import LazyData, decode

THREATS = (UsualThreat("Linf", "8/255"),)
IMAGENET_THREATS = (UsualThreat("Linf", "4/255"),)
IMAGENET_SPLITS = ("train", "test")
IMAGENET_CLASSES = 1000
_OF_TRAINING = ("train", "training")
_SPLITS = {*_OF_TRAINING, "val", "valid", "validation", "test", "testing"}


def load_folder(path: Path, split: str, reader: PictureReader) -> LazyData:
    """The pictures in `path`, or in its sub-folder with the name of the split if there is one.

    Raises:
        UserError: this is no folder of pictures.
    """
    root = path / split if user_path(path / split).is_dir() else path
    if root == path:
        _require_one_split(path, split)
    found = find_pictures(root, allow_empty=root != path)
    splits = tuple(sorted(folders_in(path))) if root != path else ()
    _require_same_classes(path, split, splits)
    origin = DatasetOrigin(str(path), image_size=reader.resize, splits=splits, gray=reader.gray)
    decoder = Decoder(found.files, found.labels, reader)
    return _lazy(path.resolve().name, split, found.classes, THREATS, decoder, origin)


def load_imagenet(data_dir: Path, split: str) -> LazyData:
    """ImageNet at 224 pixels from `data_dir/val` (its public test split) or `data_dir/train`.

    Raises:
        UserError: the folder is missing, or a sub-folder of the 1000 classes is.
    """
    from torchvision.models._meta import _IMAGENET_CATEGORIES as CATEGORIES

    root = data_dir / ("val" if split == "test" else split)
    if not user_path(root).is_dir():
        raise UserError(
            f"There is no folder {shortened(root)}; pass --data-dir DIR such that {root.name} in it has one folder "
            "of image files for each of ImageNet's 1000 classes (it cannot be downloaded from here)."
        )
    found = find_pictures(root, allow_empty=True)
    # A label is the position of the folder in sorted order: if one is missing, all labels after it are wrong.
    if len(found.classes) != IMAGENET_CLASSES:
        raise UserError(
            f"{shortened(root)} has {len(found.classes)} class folders, ImageNet has {IMAGENET_CLASSES}; a label is "
            "the position of its folder, so create the missing folders, empty if necessary."
        )
    names = tuple(CATEGORIES) if len(CATEGORIES) == IMAGENET_CLASSES else found.classes
    origin = DatasetOrigin("imagenet", data_dir, splits=IMAGENET_SPLITS)
    decoder = Decoder(found.files, found.labels, PictureReader(256, 224))
    return _lazy("imagenet", split, names, IMAGENET_THREATS, decoder, origin)


def _require_same_classes(path: Path, split: str, splits: tuple[str, ...]) -> None:
    """Check that neither a split nor the one for training lacks a class: a label is the position of a sorted folder."""
    classes = {name: {*folders_in(path / name)} for name in splits if name == split or name in _SPLITS}
    known = {each for names in classes.values() for each in names}
    for name in (split, *_OF_TRAINING):
        # A split without folders, such as one of pictures without labels, says nothing about classes.
        lacking = sorted(known - classes[name]) if classes.get(name) else []
        if lacking:
            raise UserError(
                f"{shortened(path / name)} lacks folders of classes that another split has ({listed(lacking)}), and a "
                "label is the position of a folder; create the missing ones, empty if necessary."
            )


def _require_one_split(path: Path, split: str) -> None:
    """Check that a folder without a sub-folder for the split may be used for it."""
    folders = sorted(folders_in(path))
    if folders and set(folders) <= _SPLITS and any(any(folders_in(path / name)) for name in folders):
        raise UserError(f"{shortened(path)} has no split called {split!r}; there are {', '.join(folders)}.")
    if split != "test":
        raise UserError(
            f"{shortened(path)} has no folder for a split called {split!r}, only one sub-folder per class; leave out "
            "the split to use all of its images."
        )


def _lazy(
    name: str, split: str, classes: tuple[str, ...], threats: tuple[UsualThreat, ...], decoder: Decoder,
    origin: DatasetOrigin,
) -> LazyData:  # fmt: skip
    shape = tuple(decode(decoder, 0, str(decoder.files[0])).shape)
    labels = torch.tensor(decoder.labels, dtype=torch.int64, device="cpu")
    return LazyData(name, split, classes, threats, decoder, labels, shape, decoder.files, origin)
