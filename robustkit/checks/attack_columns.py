"""The results of one attack at one threat as columns: an object for each row would take seconds and a gigabyte."""

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import starmap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from robustkit.checks.image_set import ImageSet, Integers

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AttackColumns:
    """Of each column one entry per attacked image, ascending by image; their meaning is that of `AttackRecord`."""

    sample: Integers  # [n]
    success: Integers  # 0 or 1
    adv_pred: Integers
    queries_to_break: Integers
    restart: Integers
    target: Integers
    linf: Floats
    l2: Floats
    l1: Floats
    l0: Integers
    forwards: Integers
    backwards: Integers

    @classmethod
    def of(cls, rows: Iterable[Sequence[Any]]) -> Self:
        """From rows with their values in the order of the columns."""
        values = list(zip(*rows, strict=True)) or [()] * len(fields(cls))
        return cls(
            *(np.array(each, _TYPES[field.type]) for field, each in zip(fields(cls), values, strict=True))
        )  # fmt: skip

    @classmethod
    def valid(cls, rows: Sequence[Sequence[Any]]) -> Self | None:
        """As `of`, but None if a value is missing, of another type, or a whole number below -1 or from 2**53 on."""
        layout = np.dtype([(field.name, _TYPES[field.type]) for field in fields(cls)])
        try:
            # A third of the time of twelve arrays: `pack` says at once whether all values have the right types.
            packed = b"".join(starmap(_pack_of(cls), rows))
        except struct.error:
            return None
        values = np.frombuffer(packed, layout)
        columns = [np.ascontiguousarray(values[name]) for name in layout.names or ()]
        whole = [column for column in columns if column.dtype == np.int64]
        return cls(*columns) if all(each.min() >= -1 and each.max() < 1 << 53 for each in whole) else None

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """The rows of several attacks, one attack after the other."""
        given = list(parts)
        if not given:
            return cls.of(())
        return cls(*(np.concatenate([getattr(part, field.name) for part in given]) for field in fields(cls)))

    def narrow(self) -> Self:
        """The same rows in less than half of the memory: whole numbers in the smallest type that holds a column."""
        whole: dict[str, Any] = {
            field.name: _narrowed(getattr(self, field.name)) for field in fields(self) if field.type is Integers
        }
        return replace(self, **whole)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.sample)

    @property
    def images(self) -> ImageSet:
        """The images of the rows."""
        return ImageSet(self.sample)

    @property
    def broken(self) -> ImageSet:
        """The images that the attack broke."""
        return self.images_where(self.success > 0)

    def images_where(self, chosen: NDArray[np.bool_]) -> ImageSet:
        """The images of some rows.

        Args:
            chosen: [n].
        """
        return ImageSet(self.sample[chosen])

    def rows_where(self, chosen: NDArray[np.bool_] | Integers) -> Self:
        """Some rows.

        Args:
            chosen: [n] as booleans, or their numbers in the order that is wanted.
        """
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def of_images(self, images: Iterable[int]) -> Self:
        """The rows of some images."""
        return self.rows_where(np.isin(self.sample, ImageSet(images).array))


def _pack_of(kind: type[AttackColumns]) -> Callable[..., bytes]:
    """Makes the bytes of one row, and raises `struct.error` if a value is of another type."""
    return struct.Struct("=" + "".join("q" if field.type is Integers else "d" for field in fields(kind))).pack


def _narrowed(column: Integers) -> Integers:
    for kind in (np.int8, np.int16, np.int32):
        limits = np.iinfo(kind)
        if column.min(initial=0) >= limits.min and column.max(initial=0) <= limits.max:
            return column.astype(kind)
    return column


_TYPES: dict[Any, type[np.generic]] = {Integers: np.int64, Floats: np.float64}
