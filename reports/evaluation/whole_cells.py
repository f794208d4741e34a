"""Neighbouring columns of whole numbers and of few texts, as one text for each row: most rows share theirs."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_MOST: Final = 1 << 62  # combinations that an int64 can number


class Digits(NamedTuple):
    """One column, whose cells are numbered."""

    digits: NDArray[np.int64]  # [n], each below `count`
    count: int
    least: int  # number whose digit is 1; 0 is an empty cell
    texts: Sequence[str] | None  # by digit; None for numbers

    def cell(self, digit: int) -> str:
        """What stands in the file."""
        if self.texts is not None:
            return self.texts[digit]
        return str(self.least + digit - 1) if digit else ""


def whole_digits(values: NDArray[Any], known: NDArray[np.bool_]) -> Digits:
    """Whole numbers of some rows.

    Args:
        values: [m], of the rows that have one.
        known: [n], which rows these are.
    """
    digits = np.zeros(len(known), np.int64)
    if not len(values):
        return Digits(digits, 1, 0, None)
    least = int(values.min())
    digits[known] = values.astype(np.int64) - (least - 1)
    return Digits(digits, int(values.max()) - least + 2, least, None)


def text_digits(codes: NDArray[Any], texts: Sequence[str]) -> Digits:
    """Texts of which there are a few, each row with the number of its text."""
    return Digits(codes.astype(np.int64), len(texts), 0, texts)


def joined_cells(columns: Sequence[Digits]) -> list[Sequence[str]]:
    """The cells of all rows, those of neighbouring columns joined by commas as far as they can be numbered together."""
    groups: list[list[Digits]] = []
    together = _MOST
    for each in columns:
        together *= each.count
        if together > _MOST:
            groups.append([])
            together = each.count
        groups[-1].append(each)
    return [_joined(group) for group in groups]


def _joined(columns: Sequence[Digits]) -> list[str]:
    codes = columns[0].digits
    for each in columns[1:]:
        codes = codes * each.count + each.digits
    return list(map(_Texts(columns).__getitem__, codes.tolist()))


class _Texts(dict[int, str]):
    """The texts of combinations, each made once."""

    def __init__(self, columns: Sequence[Digits]) -> None:
        self._columns = columns

    def __missing__(self, code: int) -> str:
        left, cells = code, []
        for each in reversed(self._columns):
            left, digit = divmod(left, each.count)
            cells.append(each.cell(digit))
        self[code] = text = ",".join(reversed(cells))
        return text
