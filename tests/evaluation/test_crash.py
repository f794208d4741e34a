"""A run that `kill -9` ends at any moment is resumed without a loss and to the same result."""

import os

import pytest

from tests.evaluation.crash import moments
from tests.evaluation.crash_server import killed_by_a_server

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def test_a_run_killed_at_any_moment_is_resumed_to_the_same_evidence(tmp_path):
    tried = list(moments(tmp_path))

    assert [moment for moment in tried if not moment.same] == []
    assert len([moment for moment in tried if moment.killed]) >= 10
    assert not tried[-1].killed
    assert any(moment.killed and moment.rows for moment in tried)
    assert any(moment.killed and moment.kept for moment in tried)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_run_killed_while_it_waits_for_a_server_sends_no_picture_again(parallel, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    seen = killed_by_a_server(tmp_path, parallel)

    assert seen == {**seen, "again": 0, "same": True}
    if parallel == 1:
        assert seen["ledger"] == seen["log"]
        # Two pictures are sent twice on purpose; the same command again sends none.
        assert seen == {**seen, "killed": 5, "twice": 2}
    else:
        # Of four requests at once, those that were under way when the process was killed are sent again.
        under_way = 4 * seen["killed"]
        assert seen["killed"] >= 3
        assert 0 <= seen["ledger"] - seen["log"] <= under_way
        assert seen["twice"] <= 2 + under_way
