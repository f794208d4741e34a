"""Data sets by name, from files and from tensors, all with the interface `Dataset`."""

import os
from pathlib import Path

from robustkit.errors import NoSplitError, UserError, unknown
from robustkit.host.arguments import checked_arguments
from robustkit.limits import shortened
from robustkit.paths import kind_of, neighbours, no_file, user_path
from robustkit.primitives import user_code

from .arrays import SUFFIXES, load_arrays
from .arrays import from_tensors as from_tensors
from .code import load_code_dataset
from .dataset import Dataset as Dataset
from .dataset import DatasetOrigin as DatasetOrigin
from .dataset import TensorData as TensorData
from .dataset import UsualThreat as UsualThreat
from .decoding import reader_of
from .digits import SPLITS as DIGITS_SPLITS
from .digits import THREATS as DIGITS_THREATS
from .digits import load_digits
from .folder import IMAGENET_SPLITS, IMAGENET_THREATS, load_folder, load_imagenet
from .given import given_dataset as given_dataset
from .order import pick as pick
from .part import DatasetPart as DatasetPart
from .pictures import LazyData as LazyData
from .published import PUBLISHED, load_published
from .published import SPLITS as PUBLISHED_SPLITS
from .saved_dataset import is_saved_dataset, load_saved_dataset
from .shards import is_sharded, load_shards
from .tensors import tensor_of as tensor_of

# The norms and radii that data sets known by name are evaluated at, unless others are given.
DEFAULT_THREATS = {
    "digits": DIGITS_THREATS,
    **{name: published.threats for name, published in PUBLISHED.items()},
    "imagenet": IMAGENET_THREATS,
}
NAMES = tuple(DEFAULT_THREATS)
_FILES = (
    f"pass a folder of image files or of save_to_disk, a file ending in {', '.join(SUFFIXES)} or .tar, or FILE.py:NAME"
)
# What becomes of files that look like data.
_OTHER_FILES = {
    (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".zip"): "unpack it, and pass the .tar or the folder",
    (".parquet", ".arrow"): "load it with the library datasets, and pass the folder that its save_to_disk writes",
}


@checked_arguments
def load_dataset(
    name: str,
    split: str = "test",
    *,
    data_dir: str | Path | None = None,
    download: bool = False,
    image_size: int | None = None,
    gray: bool = False,
) -> Dataset:
    """The data set called `name`, or in the file or folder of that path.

    Args:
        name: One of `NAMES` in any case; a `.npz` or `.safetensors` file with arrays `x` and `y`, or `x_train`,
            `y_train` and so on for each split; a folder with one sub-folder of pictures for each class, or one of
            `save_to_disk`; tar files of WebDataset, as a file, a folder or "test-{000..004}.tar"; or
            "path/file.py:NAME" for a data set of yours.
        split: Results are reported on "test"; that of ImageNet is its validation set.
        data_dir: The folder with the files of a published data set.
        download: Download them to that folder if they are missing.
        image_size: Resize the short side of a folder's pictures to this and crop the centre.
        gray: Read a folder's pictures with one channel, for networks that take one; otherwise they get three.

    Raises:
        UserError: there is no such data set or split, or its files are missing or broken, or hold no pictures that
            could be read as `gray`.
    """
    known, where, path = name.lower() in NAMES, user_code.address(name), user_path(name)
    arrays = path.suffix.lower() in SUFFIXES and path.is_file()
    if (data_dir is not None or download) and (not known or name.lower() == "digits"):
        raise UserError(
            f"--data-dir and --download (data_dir, download) are for published data sets, not for {shortened(name)}; "
            "leave them out."
        )
    if known or where is not None or arrays:
        _check_no_pictures(name, image_size, gray)
    if known:
        return _load_named(name.lower(), split, None if data_dir is None else user_path(data_dir), download)
    reader = reader_of(image_size, gray)
    if where is not None:
        return load_code_dataset(where, split)
    if is_sharded(name):
        return load_shards(name, split, reader)
    if arrays:
        return load_arrays(path, split)
    if is_saved_dataset(path):
        return load_saved_dataset(path, split, reader)
    if path.is_dir():
        return load_folder(path, split, reader)
    raise _not_found(name, path)


def held_out(data: Dataset, share: float) -> tuple[Dataset, Dataset]:
    """The data without a share of its images, and that share as split "val"; the choice of images is fixed.

    Raises:
        UserError: one of the two would be empty.
    """
    order = pick(len(data))
    cut = round(share * len(order)) if 0 < share < 1 else 0
    if not 0 < cut < len(order):
        raise UserError(f"A share of {share:g} of {len(data)} images leaves one part empty; choose another.")
    return DatasetPart(data, tuple(order[cut:])), DatasetPart(data, tuple(order[:cut]), split_name="val")


def other_split(data: Dataset, split: str) -> Dataset:
    """Another split of the same data set, read from the same place.

    Raises:
        NoSplitError: it has no such split, or was not loaded by `load_dataset`.
        UserError: the split cannot be read.
    """
    origin = data.origin if isinstance(data, TensorData | LazyData) else None
    if origin is None or split not in origin.splits:
        raise NoSplitError(
            f"{data.name} has no split called {split!r} besides {data.split!r}; give a folder with one sub-folder for "
            f"each split, or a file with arrays x_{split} and y_{split} too."
        )
    return load_dataset(origin.name, split, data_dir=origin.data_dir, image_size=origin.image_size, gray=origin.gray)


def _check_no_pictures(name: str, image_size: int | None, gray: bool) -> None:
    """Check that nothing is asked for that only folders of pictures can do."""
    if image_size is not None:
        raise UserError(
            f"--image-size (image_size) is for folders of image files; the size of {shortened(name)} is fixed, so "
            "leave it out."
        )
    if gray:
        raise UserError(f"Only image files can be read as gray; {shortened(name)} has the channels that it has.")


def _load_named(name: str, split: str, data_dir: Path | None, download: bool) -> Dataset:
    if name == "digits":
        _require_split(name, split, DIGITS_SPLITS)
        return load_digits(split)
    _require_split(name, split, IMAGENET_SPLITS if name == "imagenet" else PUBLISHED_SPLITS)
    if name == "imagenet" and download:
        raise UserError(
            "ImageNet cannot be downloaded; get it from image-net.org and pass --data-dir DIR without --download."
        )
    if data_dir is None:
        download_hint = "" if name == "imagenet" else ", and --download to download it there once"
        raise UserError(
            f"{name} does not come with robustkit; pass --data-dir DIR, the folder with its files{download_hint}."
        )
    return load_imagenet(data_dir, split) if name == "imagenet" else load_published(name, split, data_dir, download)


def _require_split(name: str, split: str, splits: tuple[str, ...]) -> None:
    if split not in splits:
        raise UserError(f"{name} has no split called {split!r}; there are {', '.join(splits)}.")


def _not_found(name: str, path: Path) -> UserError:
    if path.is_file():
        other = next((fix for endings, fix in _OTHER_FILES.items() if path.name.lower().endswith(endings)), None)
        return UserError(f"{shortened(path)} is not a data set; {other or _FILES}.")
    if len(path.parts) > 1 or path.suffix or kind_of(path) is not None or name.endswith(("/", os.sep)):
        return no_file(f"There is no file or folder {shortened(path)}", path, "check the path of the data set")
    return unknown("data set", shortened(path), [*NAMES, *neighbours(path)])
