"""Rows of attacks as columns: the same as row by row."""

from hypothesis import given, settings
from hypothesis import strategies as st

from robustkit.checks.attack_columns import AttackColumns
from robustkit.evidence.results import combined

ROWS = st.tuples(
    st.integers(0, 6), st.integers(0, 1), *[st.integers(-1, 9)] * 4, *[st.floats(0, 9)] * 3, *[st.integers(0, 99)] * 3
)  # fmt: skip
ATTACKS = st.lists(st.lists(ROWS, unique_by=lambda row: row[0]).map(sorted), max_size=4)


@settings(max_examples=40)
@given(ATTACKS)
def test_an_image_counts_with_its_first_error_or_its_last_row_and_all_passes(attacks):
    together = combined(AttackColumns.joined(AttackColumns.of(rows) for rows in attacks))

    expected = {}
    for number in sorted({row[0] for rows in attacks for row in rows}):
        own = [row for rows in attacks for row in rows if row[0] == number]
        shown = next((row for row in own if row[1]), own[-1])
        expected[number] = (*shown[1:10], sum(row[10] for row in own), sum(row[11] for row in own))
    names = [name for name in vars(together) if name != "sample"]
    assert dict(zip(together.sample.tolist(), zip(*(getattr(together, name).tolist() for name in names), strict=True),
                    strict=True)) == expected  # fmt: skip
    assert together.broken == {number for number, row in expected.items() if row[0]}


def test_values_of_another_type_or_size_are_not_valid():
    row = (3, 1, 0, 1, 0, -1, 0.1, 0.2, 0.3, 4, 5, 6)
    wrong = {0: "3", 1: None, 2: 0.5, 3: -2, 9: 2**53, 6: None, 8: "0.3", 11: 2**70}

    assert AttackColumns.valid([row]).sample.tolist() == [3]
    for place, value in wrong.items():
        assert AttackColumns.valid([row, (*row[:place], value, *row[place + 1 :])]) is None
