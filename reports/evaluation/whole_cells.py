"""Neighbouring columns of whole numbers and of few texts, as one text for each row: most rows share theirs."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_MOST_BITS: Final = 62  # of the number of a combination of cells
_KEPT: Final = 1 << 16  # texts; a file of other combinations makes them again


class CellNumbers(NamedTuple):
    """One column, whose different cells have numbers."""

    numbers: NDArray[np.int64]  # [n]
    bits: int  # that the largest number takes
    texts: tuple[str, ...]  # by number; empty for whole numbers, which `_whole` writes


def whole_numbers(values: NDArray[Any], known: NDArray[np.bool_]) -> CellNumbers:
    """Whole numbers from -1 on, which some rows have.

    Args:
        values: [m], of the rows that have one.
        known: [n], which rows these are.
    """
    numbers = np.zeros(len(known), np.int64)
    numbers[known] = values.astype(np.int64) + 2
    return CellNumbers(numbers, int(numbers.max(initial=0)).bit_length(), ())


def few_texts(codes: NDArray[Any], texts: Sequence[str]) -> CellNumbers:
    """Texts of which there are a few, each row with the number of its text."""
    return CellNumbers(codes.astype(np.int64), len(texts).bit_length(), tuple(texts))


class JoinedCells:
    """Writes such columns; a combination of cells that occurs again is not written again."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, tuple[str, ...]], ...], _Texts] = {}

    def of(self, columns: Sequence[CellNumbers]) -> Iterator[list[str]]:
        """For each row its cells, joined by commas; several columns where one number cannot stand for all cells."""
        together: list[CellNumbers] = []
        for each in columns:
            if together and sum(one.bits for one in together) + each.bits > _MOST_BITS:
                yield self._joined(together)
                together = []
            together.append(each)
        if together:
            yield self._joined(together)

    def _joined(self, columns: Sequence[CellNumbers]) -> list[str]:
        codes = columns[0].numbers
        for each in columns[1:]:
            codes = (codes << each.bits) | each.numbers
        layout = tuple((each.bits, each.texts) for each in columns)
        texts = self._known.setdefault(layout, _Texts(layout))
        if len(texts) > _KEPT:
            texts.clear()
        return list(map(texts.__getitem__, codes.tolist()))


class _Texts(dict[int, str]):
    """The texts of combinations, each made once."""

    def __init__(self, layout: tuple[tuple[int, tuple[str, ...]], ...]) -> None:
        self._layout = layout[::-1]

    def __missing__(self, code: int) -> str:
        left, cells = code, []
        for bits, texts in self._layout:
            number = left & ((1 << bits) - 1)
            cells.append(texts[number] if texts else _whole(number))
            left >>= bits
        self[code] = text = ",".join(reversed(cells))
        return text


def _whole(number: int) -> str:
    return str(number - 2) if number else ""
