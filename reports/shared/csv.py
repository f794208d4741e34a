"""Data frames as CSV files: the same bytes for the same frame."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from pandas.api.types import is_numeric_dtype

from robustkit.host.files import write_text
from robustkit.host.text import csv_cell


def write_frame(path: Path, frame: pd.DataFrame, columns: Sequence[str] | None = None) -> None:
    """Write `frame` as CSV to `path`, replacing an old file in one step; see `csv_text`.

    Raises:
        UserError: the file cannot be written.
    """
    write_text(path, csv_text(frame, columns))


def csv_text(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> str:
    """`frame` as CSV; floats are the shortest text that reads back as the same number.

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
    return str(frame.to_csv(index=False, lineterminator="\n", na_rep=""))
