"""A run that `kill -9` ends at any moment is resumed without a loss and to the same result."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that torch is imported once")
def test_a_run_killed_at_any_moment_is_resumed_to_the_same_evidence(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "crash.py", tmp_path, "15"],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1", "no_proxy": "127.0.0.1"},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    # One process for both, because importing torch takes longer than all of these runs.
    *moments, server, parallel = [json.loads(line) for line in done.stdout.splitlines()]

    assert [moment for moment in moments if not moment["same"]] == []
    assert len([moment for moment in moments if moment["killed"]]) >= 10
    assert not moments[-1]["killed"]
    assert any(moment["killed"] and moment["rows"] for moment in moments)
    assert any(moment["killed"] and moment["kept"] for moment in moments)
    assert server["ledger"] == server["log"]
    # Two pictures are sent twice on purpose; the same command again sends none.
    assert server == {**server, "killed": 5, "twice": 2, "again": 0, "same": True}
    # Of four requests at once, those that were under way when the process was killed are sent again.
    under_way = 4 * parallel["killed"]
    assert parallel == {**parallel, "again": 0, "same": True}
    assert parallel["killed"] >= 3
    assert 0 <= parallel["ledger"] - parallel["log"] <= under_way
    assert parallel["twice"] <= 2 + under_way
