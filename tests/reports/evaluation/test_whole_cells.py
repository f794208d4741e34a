"""Cells that are written together are those that would be written one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from robustkit.reports.evaluation.whole_cells import JoinedCells, few_texts, whole_numbers

CELLS = st.one_of(st.none(), st.integers(-1, 3), st.integers(-1, 2**50))
ROWS = st.lists(st.tuples(st.sampled_from(["robust", '"a,b"']), CELLS, CELLS, CELLS))


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_rows_are_their_cells_with_commas_between(chunks):
    joined = JoinedCells()  # remembers texts of earlier chunks
    for rows in chunks:
        words, *columns = zip(*rows, strict=True) if rows else ((), (), (), ())
        texts = sorted(set(words))
        given_cells = [few_texts(np.array([texts.index(word) for word in words], np.int8), texts)]
        for column in columns:
            known = np.array([value is not None for value in column], bool)
            given_cells.append(
                whole_numbers(np.array([value for value in column if value is not None], np.int64), known)
            )

        written = list(map(",".join, zip(*joined.of(given_cells), strict=True)))

        assert written == [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
