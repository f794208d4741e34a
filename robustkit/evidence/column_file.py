"""Columns of a large run in a temporary file, so that its rows do not stay in memory.

A column is read through a memory map: its pages leave memory when `release` is called, or when others need the room.
"""

import mmap
import tempfile
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from robustkit.evidence.parts import Gaps, Part

# What the page reads of every row is small, and stays in memory.
_MOVED: Final = ("queries_to_break", "restart", "target", "linf", "l2", "l1", "l0")
_IN_MEMORY: Final = 32 * 2**20  # bytes of columns before the file is made
_SEGMENT: Final = 64 * 2**20  # bytes of one map: each keeps a file open
_ALIGNED: Final = 16


class ColumnFile:
    """Takes columns until it is no longer used.

    Args:
        in_memory: bytes of columns that stay where they are.
    """

    def __init__(self, in_memory: int = _IN_MEMORY) -> None:
        self._left = in_memory
        self._file: Any = None
        self._maps: list[mmap.mmap] = []
        self._start = self._used = self._end = 0  # of the last map, in the file
        self._moved: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}  # by id: a column, and where it is now

    def moved(self, parts: list[Part]) -> list[Part]:
        """The parts of one model; equal, with the columns that only samples.csv needs in the file."""
        found = [{name: self._of(name, value) for name, value in part.items()} for part in parts]
        self._moved.clear()  # the columns of another model are others
        self.release()
        return found

    def release(self) -> None:
        """Give back the memory of all pages; they are read again when somebody needs them."""
        for each in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                each.madvise(mmap.MADV_DONTNEED)

    def _of(self, name: str, value: Any) -> Any:
        if name not in _MOVED or not isinstance(value, Gaps) or not value.values.nbytes:
            return value
        if id(value.values) not in self._moved:
            self._moved[id(value.values)] = value.values, self._column(value.values)
        return value._replace(values=self._moved[id(value.values)][1])

    def _column(self, values: NDArray[Any]) -> NDArray[Any]:
        self._left -= values.nbytes
        if self._left >= 0:
            return values
        try:
            return self._written(values)
        except OSError:  # no room for files: there may be some in memory
            return values

    def _written(self, values: NDArray[Any]) -> NDArray[Any]:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="robustkit-", buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)  # maps stay as long as their columns
        if self._used + values.nbytes > self._end:
            size = -(-max(values.nbytes, _SEGMENT) // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
            self._file.truncate(self._end + size)
            self._maps.append(mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ, offset=self._end))
            self._start = self._used = self._end
            self._end += size
        place = self._used
        self._file.seek(place)
        if self._file.write(values.tobytes()) < values.nbytes:
            raise OSError("the disk is full")
        self._used = -(-(place + values.nbytes) // _ALIGNED) * _ALIGNED
        return np.frombuffer(self._maps[-1], values.dtype, len(values), place - self._start)
