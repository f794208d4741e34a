"""Marks on the images of a run: one byte for each image and name, such as that of an attack.

A set of images takes a hundred bytes for each, and millions of images under some attacks would fill the memory. Bytes
are looked up for many images at once, so that a question about a few of them takes no longer in a large run.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from robustkit.checks.image_set import different

Name = TypeVar("Name", bound=Hashable)
Places = NDArray[np.signedinteger[Any]]  # rows of `ImageMarks.images`
Numbers = NDArray[np.signedinteger[Any]]  # of images

_EVERYTHING = slice(None)
_LARGE: Final = 1 << 16  # images; the rows of fewer under one attack are on 1,700 pages, which SQLite keeps in memory
_NEIGHBOURS: Final = 64  # their rows are on two or three pages; more would make parts of a run less random


class ImageMarks(Generic[Name]):
    """Up to eight marks, as bits of a byte, on each image under each name.

    Args:
        images: all images that may be asked about.

    Attributes:
        images: `[m]` their numbers, ascending.
    """

    def __init__(self, images: Iterable[int] | Numbers) -> None:
        self.images: NDArray[np.int64] = different(_numbers(images))
        self._marks: dict[Name, NDArray[np.uint8]] = {}

    def places(self, images: Sequence[int] | Numbers) -> Places:
        """`[n]` the places of images, all of which must be known."""
        return np.searchsorted(self.images, _numbers(images))

    def known(self, images: Numbers) -> NDArray[np.bool_]:
        """`[n]` whether images are known."""
        return np.isin(images, self.images)

    def mark(self, name: Name, places: Places, marks: int | NDArray[Any]) -> None:
        """Add marks to images under a name; those that they have stay."""
        own = self._marks.get(name)
        if own is None:
            own = self._marks[name] = np.zeros(len(self.images), np.uint8)
        own[places] |= np.asarray(marks, np.uint8)

    def marked(self, name: Name, mark: int, places: Places | None = None) -> NDArray[np.bool_]:
        """Whether each image has a mark under a name: `[n]` of some places, or `[m]` of all images."""
        where = _EVERYTHING if places is None else places
        own = self._marks.get(name)
        if own is None:
            return np.zeros(len(self.images) if places is None else len(places), np.bool_)
        return own[where] & mark > 0

    def marked_under_any(self, names: Iterable[Name], mark: int, places: Places | None = None) -> NDArray[np.bool_]:
        """Whether each image has a mark under at least one of some names, as `marked`."""
        found = np.zeros(len(self.images) if places is None else len(places), np.bool_)
        for name in names:
            if name in self._marks:
                found |= self.marked(name, mark, places)
        return found


def parts_of(images: Numbers, size: int) -> Iterator[list[int]]:
    """The images in their order, at most `size` at a time."""
    for start in range(0, len(images), size):
        yield images[start : start + size].tolist()


def neighbours_together(images: Numbers) -> Numbers:
    """The images of a large run in an order that SQLite writes quickly; those of a smaller one as they are.

    In a table of millions of rows, each row of some images in random order is on another page, and SQLite writes all of
    these pages again. So images of near numbers come together, in groups whose order is that of their first images.
    """
    if len(images) < _LARGE:
        return images
    _, firsts, groups = np.unique(images // _NEIGHBOURS, return_index=True, return_inverse=True)
    return images[np.lexsort((images, firsts[groups]))]


def _numbers(images: Iterable[int] | Numbers) -> NDArray[np.int64]:
    if isinstance(images, np.ndarray):
        return images.astype(np.int64, copy=False)
    return np.fromiter(images, np.int64)
