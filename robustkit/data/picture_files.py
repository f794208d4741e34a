"""Find the pictures of a folder with one sub-folder per class, without following it to places that have no end."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from robustkit import limits
from robustkit.errors import UserError
from robustkit.limits import shortened

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # as torchvision's ImageFolder
# Pictures that are not read. Left out in silence, they would make a result one about a part of the folder.
_UNREAD = (
    ".gif", ".avif", ".heic", ".heif", ".jp2", ".j2k", ".jxl", ".jpe", ".jfif", ".tga", ".ico", ".psd", ".svg", ".dng",
    ".exr", ".hdr", ".pbm", ".pnm", ".pcx",
)  # fmt: skip
_LISTED = 3


class PictureFiles(NamedTuple):
    """The pictures in the order of torchvision's `ImageFolder`: by class, then by path."""

    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: tuple[int, ...]  # the position of the class in `classes`


class _Budget:
    """Counts what is met, and refuses a folder that is no data set."""

    def __init__(self, root: Path) -> None:
        self.root, self.pictures, self.others = root, 0, 0

    def count(self, picture: bool) -> None:
        self.pictures, self.others = self.pictures + picture, self.others + (not picture)
        if self.others > self.pictures + limits.OTHER_FILES:
            raise UserError(
                f"{shortened(self.root)} is not a folder of image files: more than {limits.OTHER_FILES:,} other files "
                "lie there; pass a folder with one sub-folder of image files per class."
            )
        limits.require_at_most(f"The number of files in {shortened(self.root)}", self.pictures, limits.PICTURES)


def find_pictures(root: Path, *, allow_empty: bool) -> PictureFiles:
    """The pictures in the sub-folders of `root`, each sub-folder a class.

    Args:
        root: the folder.
        allow_empty: a class may have no pictures.

    Raises:
        UserError: there are no classes or no pictures, a folder cannot be read or leads back into itself, or a picture
            is no regular file or of a kind that is not read.
    """
    classes = sorted(folders_in(root))
    limits.require_at_most(f"The number of sub-folders of {shortened(root)}", len(classes), limits.CLASSES)
    if not classes:
        raise UserError(f"{shortened(root)} is not a folder of image files: it needs one sub-folder per class.")
    budget = _Budget(root)
    found = [sorted(_pictures_under(root / name, budget)) for name in classes]
    empty = [name for name, files in zip(classes, found, strict=True) if not files]
    if not any(found):
        raise UserError(f"{shortened(root)} has no images in its class folders; put some there.")
    if empty and not allow_empty:
        raise UserError(
            f"{shortened(root)} is not a folder of image files (no image in {listed(empty)}); it needs one sub-folder "
            "per class."
        )
    files = tuple(Path(folder, name) for of_class in found for folder, name in of_class)
    return PictureFiles(tuple(classes), files, tuple(label for label, of_class in enumerate(found) for _ in of_class))


def listed(folders: list[str]) -> str:
    """The first names of folders for an error, and how many more there are."""
    more = f" and {len(folders) - _LISTED} more" if len(folders) > _LISTED else ""
    return shortened(", ".join(folders[:_LISTED])) + more


def pictures_in(folder: Path) -> list[Path]:
    """The pictures that lie in a folder itself, sorted by name.

    Raises:
        UserError: the folder cannot be read, holds too many other files, or a picture is no regular file or of a kind
            that is not read.
    """
    budget, found = _Budget(folder), []
    for entry in _entries(folder):
        picture = not _holds(entry.is_dir) and _is_picture(entry)
        budget.count(picture)
        if picture:
            found.append(folder / entry.name)
    return sorted(found)


def folders_in(folder: Path) -> list[str]:
    """The names of the folders in a folder, but for those of tools.

    Raises:
        UserError: it cannot be read.
    """
    return [entry.name for entry in _entries(folder) if _holds(entry.is_dir) and not _of_a_tool(entry.name)]


def _of_a_tool(name: str) -> bool:
    """Whether a folder is one that editors and Python leave behind, such as .ipynb_checkpoints."""
    return name.startswith(".") or name == "__pycache__"


def _pictures_under(top: Path, budget: _Budget) -> Iterator[tuple[str, str]]:
    """Folder and name of each picture in a folder and in the folders below it."""
    # With each folder wait the folders above it: a link to one of those would have no end.
    waiting = [(str(top), frozenset[tuple[int, int]]())]
    while waiting:
        folder, above = waiting.pop()
        known = _identity(folder)
        if known in above:
            raise UserError(
                f"{shortened(folder)} is a link to a folder above it, which would never end; remove the link."
            )
        for entry in _entries(folder):
            if _holds(entry.is_dir):
                budget.count(picture=False)
                if not _of_a_tool(entry.name):
                    waiting.append((entry.path, above | {known}))
                continue
            picture = _is_picture(entry)
            budget.count(picture)
            if picture:
                yield folder, entry.name


def _is_picture(entry: "os.DirEntry[str]") -> bool:
    """Whether what is no folder is a picture, by its name; hidden files are none, such as the ._a.png of macOS."""
    if entry.name.startswith("."):
        return False
    suffix = Path(entry.name).suffix.lower()
    if suffix in _UNREAD:
        raise UserError(
            f"{shortened(entry.path)} is an image in a format that robustkit does not read ({suffix}); convert "
            "images of this format, to PNG for example, or remove them."
        )
    if suffix in SUFFIXES and not _holds(entry.is_file):
        raise UserError(f"{shortened(entry.path)} is not a regular file, so it cannot be read; remove it.")
    return suffix in SUFFIXES


def _entries(folder: str | Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise UserError(f"The folder {shortened(folder)} cannot be read ({error.strerror}).") from None


def _holds(statement: Callable[[], bool]) -> bool:
    """Whether an entry is a folder or a file; a link to itself is neither."""
    try:
        return statement()
    except OSError:
        return False


def _identity(folder: str) -> tuple[int, int]:
    try:
        status = os.stat(folder)
    except OSError as error:
        raise UserError(f"The folder {shortened(folder)} cannot be read ({error.strerror}).") from None
    return status.st_dev, status.st_ino
