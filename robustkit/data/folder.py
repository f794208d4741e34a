"""Data sets from folders of pictures with one sub-folder per class; ImageNet is such a folder."""

from pathlib import Path
from typing import Any

import torch

from robustkit.errors import UserError

from .dataset import DatasetOrigin, UsualThreat
from .pictures import LazyData, decode

THREATS = (UsualThreat("Linf", "8/255"),)
IMAGENET_THREATS = (UsualThreat("Linf", "4/255"),)
IMAGENET_SPLITS = ("train", "test")
IMAGENET_CLASSES = 1000
_SPLITS = {"train", "training", "val", "valid", "validation", "test", "testing"}


def load_folder(path: Path, split: str, image_size: int | None) -> LazyData:
    """The pictures in `path`, or in its sub-folder with the name of the split if there is one.

    Pictures are read as RGB; with `image_size` the short side is resized to it and the centre is cropped.
    """
    root = path / split if (path / split).is_dir() else path
    if root == path:
        _require_one_split(path, split)
    items = _image_folder(root, _transform(image_size, image_size), allow_empty=False)
    splits = tuple(sorted(part.name for part in path.iterdir() if part.is_dir())) if root != path else ()
    origin = DatasetOrigin(str(path), image_size=image_size, splits=splits)
    return _lazy(path.resolve().name, split, tuple(items.classes), THREATS, items, origin)


def load_imagenet(data_dir: Path, split: str) -> LazyData:
    """ImageNet at 224 pixels from `data_dir/val` (its public test split) or `data_dir/train`.

    Raises:
        UserError: the folder is missing, or a sub-folder of the 1000 classes is.
    """
    from torchvision.models._meta import _IMAGENET_CATEGORIES as CATEGORIES

    root = data_dir / ("val" if split == "test" else split)
    if not root.is_dir():
        raise UserError(
            f"There is no folder {root}; pass --data-dir DIR such that {root.name} in it has one folder of pictures "
            "for each of ImageNet's 1000 classes (it cannot be downloaded from here)."
        )
    items = _image_folder(root, _transform(256, 224), allow_empty=True)
    # A label is the position of the folder in sorted order: if one is missing, all labels after it are wrong.
    if len(items.classes) != IMAGENET_CLASSES:
        raise UserError(
            f"{root} has {len(items.classes)} class folders, ImageNet has {IMAGENET_CLASSES}; a label is the "
            "position of its folder, so create the missing folders, empty if necessary."
        )
    names = tuple(CATEGORIES) if len(CATEGORIES) == IMAGENET_CLASSES else tuple(items.classes)
    origin = DatasetOrigin("imagenet", data_dir, splits=IMAGENET_SPLITS)
    return _lazy("imagenet", split, names, IMAGENET_THREATS, items, origin)


def _require_one_split(path: Path, split: str) -> None:
    """Check that a folder without a sub-folder for the split may be used for it."""
    folders = sorted(part.name for part in path.iterdir() if part.is_dir())
    if (
        folders
        and set(folders) <= _SPLITS
        and any(part.is_dir() for name in folders for part in (path / name).iterdir())
    ):
        raise UserError(f"{path} has no split called {split!r}; there are {', '.join(folders)}.")
    if split != "test":
        raise UserError(
            f"{path} has no folder for a split called {split!r}, only one sub-folder per class; leave out the split to "
            "use all of its pictures."
        )


def _image_folder(root: Path, transform: Any, *, allow_empty: bool) -> Any:
    from torchvision.datasets import ImageFolder

    try:
        items = ImageFolder(str(root), transform=transform, allow_empty=allow_empty)
    except FileNotFoundError as error:
        raise UserError(
            f"{root} is not a folder of pictures ({str(error).rstrip('.')}); it needs one sub-folder per class."
        ) from error
    if not items.samples:
        raise UserError(f"{root} has no pictures in its class folders; put some there.")
    return items


def _transform(resize: int | None, crop: int | None) -> Any:
    from torchvision.transforms import CenterCrop, Compose, Resize, ToTensor

    return Compose([*([Resize(resize), CenterCrop(crop)] if resize and crop else []), ToTensor()])


def _lazy(
    name: str, split: str, classes: tuple[str, ...], threats: tuple[UsualThreat, ...], items: Any, origin: DatasetOrigin
) -> LazyData:
    files = tuple(Path(file) for file, _ in items.samples)
    shape = tuple(decode(items, 0, str(files[0])).shape)
    labels = torch.tensor(items.targets, dtype=torch.int64)
    return LazyData(name, split, classes, threats, items, labels, shape, files, origin)
