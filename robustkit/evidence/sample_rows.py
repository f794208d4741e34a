"""The rows of `Run.samples`, which become a data frame only when somebody asks for it: ten million take gigabytes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
from typing_extensions import Self

from robustkit.evidence.column_file import ColumnFile
from robustkit.evidence.parts import IMAGE, Part, sample_frame

PLACE: Final = ("model", "norm", "eps", "eps_text", "attack")  # columns in which all rows of a part are equal


class SampleRows:
    """Parts with the names of their columns.

    Args:
        parts: each with a value for `PLACE`, the three columns about the image, and the verdict.
        columns: of the data frame, in its order.
        file: where columns of the parts may be.
    """

    def __init__(self, parts: Iterable[Part], columns: Sequence[str], file: ColumnFile | None = None) -> None:
        self._file = file
        self._all = list(parts)
        self.columns = [*columns]
        self.given: pd.DataFrame | None = None

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> Self:
        """The rows of a data frame that somebody made."""
        rows = cls([], [str(name) for name in frame.columns])
        rows.given = frame
        return rows

    @cached_property
    def parts(self) -> list[Part]:
        """The parts that have rows."""
        if self.given is None:
            return [part for part in self._all if len(part["sample"])]
        groups = self.given.groupby([*PLACE], sort=False) if len(self.given) else ()
        return [{**dict(zip(PLACE, place, strict=True)), **_columns(rows)} for place, rows in groups]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """`Run.samples`."""
        return sample_frame(self._all, self.columns) if self.given is None else self.given

    def in_turn(self) -> Iterator[Part]:
        """The parts that have rows, one after the other, each in memory only as long as it is the last one."""
        for part in self.parts:
            yield part
            if self._file is not None:
                self._file.release()

    def __len__(self) -> int:
        """Number of rows."""
        return sum(len(part["sample"]) for part in self.parts) if self.given is None else len(self.given)

    def renamed(self, changes: Callable[[Part], Mapping[str, str]]) -> "SampleRows":
        """The same rows, in which models or attacks have other names."""
        return SampleRows([{**part, **changes(part)} for part in self.parts], self.columns, self._file)


def joined(several: Sequence[SampleRows]) -> SampleRows:
    """The rows of all, with all columns that any of them has."""
    columns = dict.fromkeys(name for rows in several for name in rows.columns)
    return SampleRows([part for rows in several for part in rows.parts], [*columns])


def _columns(rows: pd.DataFrame) -> Part:
    values: dict[str, Any] = {name: rows[name].to_numpy(np.int64) for name in IMAGE}
    for name in map(str, rows.columns):
        if name in PLACE or name in IMAGE:
            continue
        texts = not pd.api.types.is_numeric_dtype(rows[name].dtype)
        values[name] = rows[name].to_numpy(object) if texts else rows[name].to_numpy(float, na_value=np.nan)
    return values
