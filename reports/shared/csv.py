"""Data frames as CSV files: the same bytes for the same frame."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from robustkit.host.files import write_pieces
from robustkit.host.text import csv_cell

_CHUNK: Final = 1 << 14  # rows that are in memory as objects


def write_frame(path: Path, frame: pd.DataFrame, columns: Sequence[str] | None = None) -> None:
    """Write `frame` as CSV to `path`, replacing an old file in one step; see `csv_pieces`.

    Raises:
        UserError: the file cannot be written.
    """
    write_pieces(path, csv_pieces(frame, columns))


def csv_text(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> str:
    """`frame` as CSV; see `csv_pieces`."""
    return "".join(csv_pieces(frame, columns))


def csv_pieces(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> Iterator[str]:
    """`frame` as CSV, some thousand rows at a time; floats are the shortest text that reads back as the same number.

    A text that a spreadsheet would run as a formula gets an apostrophe before it, in column names too.

    Args:
        frame: the rows.
        columns: these come first, in this order, then any others by name; None keeps the frame's order.
    """
    if columns is not None:
        further = sorted(set(map(str, frame.columns)) - set(columns))
        frame = frame[[column for column in columns if column in frame.columns] + further]
    frame = frame.rename(columns=csv_cell)
    for name in frame.columns[[not is_numeric_dtype(kind) for kind in frame.dtypes]]:
        # Most columns of texts have few different ones.
        if any(csv_cell(value) is not value for value in frame[name].unique()):
            frame[name] = frame[name].map(csv_cell)
    yield str(frame.iloc[:0].to_csv(index=False, lineterminator="\n"))
    for start in range(0, len(frame), _CHUNK):
        yield _body(frame[start : start + _CHUNK])


def _body(frame: pd.DataFrame) -> str:
    """Rows as `DataFrame.to_csv` writes them, in a third of its time and memory."""
    columns = [_cells(frame.iloc[:, number]) for number in range(frame.shape[1])]
    if len(columns) == 1:
        columns = [[text or '""' for text in columns[0]]]  # an empty line would be no row
    return "".join(f"{row}\n" for row in map(",".join, zip(*columns, strict=True)))


def _cells(column: "pd.Series[Any]") -> list[str]:
    texts = column.to_numpy(object)
    if is_numeric_dtype(column.dtype):
        texts = np.array([str(value) for value in texts], object)
    else:
        quoted = {value: _quoted(value) for value in column.dropna().unique()}
        texts = np.array([quoted.get(value, "") for value in texts], object)
    texts[column.isna().to_numpy()] = ""
    return list(texts)


def _quoted(value: object) -> str:
    """A value as the module csv writes it."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([value, 0])
    return line.getvalue().removesuffix(",0\n")
