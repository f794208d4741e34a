from contextlib import closing

import pytest

from robustkit.errors import UserError
from robustkit.evidence.queries import checkpoints
from robustkit.evidence.rows import QueryRecord
from robustkit.evidence.store import Store


def test_checkpoints_go_on_as_on_a_bank_note():
    assert checkpoints(100) == [1, 2, 5, 10, 20, 50, 100]
    assert checkpoints(101)[-1] == 200
    assert checkpoints(1) == [1]


@pytest.mark.parametrize("text", ["", "1:0.5", "10:1e-05 20:3"])
def test_distances_are_read_as_they_were_written(text):
    record = QueryRecord("m", "L2", "minimum", "rays", 0, 20, text)
    with closing(Store(None)) as store:
        store.write([record])

        assert store.rows(QueryRecord, "m") == [record]


@pytest.mark.parametrize("text", ["1", "a:b", "1:0.5;", "1:nan", "1:-1", "\u0661:1"])
def test_distances_that_we_did_not_write_are_refused(text):
    with closing(Store(None)) as store:
        store.write([QueryRecord("m", "L2", "minimum", "rays", 0, 20, text)])

        with pytest.raises(UserError, match="are not numbers"):
            store.rows(QueryRecord, "m")
