"""samples.csv out of the parts of a run, some thousand rows at a time: the bytes of its data frame, without it."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from robustkit.evidence.parts import IMAGE, WHOLE, Gaps, Part, Words
from robustkit.evidence.run import SAMPLE_COLUMNS
from robustkit.evidence.sample_rows import PLACE, SampleRows
from robustkit.host.text import csv_cell

from ..shared.csv import CHUNK, csv_pieces, lines, numbers, quoted, with_gaps
from .whole_cells import CellNumbers, JoinedCells, few_texts, whole_numbers


def sample_pieces(rows: SampleRows) -> Iterator[str]:
    """The file piece by piece; see `csv_pieces`."""
    if rows.given is not None or not len(rows):
        yield from csv_pieces(rows.frame, SAMPLE_COLUMNS)
        return
    names = [*SAMPLE_COLUMNS, *sorted(set(rows.columns) - set(SAMPLE_COLUMNS))]
    yield f"{','.join(names)}\n"
    images, joined = _ImageCells(), JoinedCells()
    for part in rows.in_turn():
        # `SAMPLE_COLUMNS` begins with the place, and then the image.
        prefix = "".join(f"{_cell(part[name])}," for name in PLACE)
        for start in range(0, len(part["sample"]), CHUNK):
            here = slice(start, start + CHUNK)
            columns = _columns(part, names[len(PLACE) + len(IMAGE) :], here, joined)
            yield lines([images.of(part, here), *columns], prefix)


_KEPT: Final = 8  # chunks of texts about images


class _ImageCells:
    """The cells about the images themselves, which many parts share: the last ones are kept."""

    def __init__(self) -> None:
        self._made: dict[int, list[str]] = {}  # by first row
        self._arrays: list[NDArray[Any]] = []

    def of(self, part: Part, here: slice) -> list[str]:
        """Number, label and clean prediction of each image, as one text."""
        arrays = [part[name] for name in IMAGE]
        if len(self._arrays) != len(arrays) or any(a is not b for a, b in zip(arrays, self._arrays, strict=True)):
            self._arrays, self._made = arrays, {}
        if here.start in self._made:
            return self._made[here.start]
        columns = [numbers(np.asarray(each[here])) for each in arrays]
        made = list(map(",".join, zip(*columns, strict=True)))
        if len(self._made) < _KEPT:
            self._made[here.start] = made
        return made


def _columns(part: Part, names: Sequence[str], here: slice, joined: JoinedCells) -> Iterator[Sequence[str]]:
    """The cells of some columns; neighbours of whole numbers or few texts are joined."""
    for is_whole, group in groupby(names, lambda name: _is_whole(part.get(name, ""))):
        if is_whole:
            yield from joined.of([_numbered(part[name], here) for name in group])
        else:
            yield from (_cells(part, name, here) for name in group)


def _is_whole(value: object) -> bool:
    return isinstance(value, Words) or (isinstance(value, Gaps) and value.values.dtype.kind == "i")


def _numbered(value: Words | Gaps, here: slice) -> CellNumbers:
    if isinstance(value, Words):
        return few_texts(value.codes[here], [_cell(text) for text in value.texts])
    return whole_numbers(*_part_of(value, here))


def _part_of(value: Gaps, here: slice) -> Gaps:
    """Some rows of a column."""
    first, known = int(value.known[: here.start].sum()), value.known[here]
    return Gaps(value.values[first : first + int(known.sum())], known)


def _cells(part: Part, name: str, here: slice) -> Sequence[str]:
    value = part.get(name, "")
    if isinstance(value, Gaps):
        values, known = _part_of(value, here)
        return numbers(values) if len(values) == len(known) else with_gaps(numbers(values), known)
    if not isinstance(value, np.ndarray):
        return [_cell(value)] * len(part["sample"][here])
    own = value[here]
    return [_cell(each) for each in own.tolist()] if own.dtype == object else _whole_or_float(name, own)


def _whole_or_float(name: str, values: NDArray[Any]) -> list[str]:
    """Numbers as the data frame has them: whole ones may be stored as floats, where some are missing."""
    if values.dtype.kind != "f" or name not in WHOLE:
        return numbers(values)
    known = ~np.isnan(values)
    return with_gaps(numbers(values[known].astype(np.int64)), known)


def _cell(value: str | float) -> str:
    """A text or number as a cell; missing ones are empty."""
    if isinstance(value, str):
        return quoted(csv_cell(value))
    return "" if value != value else repr(float(value))
