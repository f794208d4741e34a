"""A run against a server that `kill -9` ends at any request asks for nothing again that was answered."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, so that torch is imported once")
def test_a_killed_run_asks_for_no_answer_twice(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "crash_http.py", tmp_path],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1", "no_proxy": "127.0.0.1"},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)

    assert found["killed"] == 5
    assert found["ledger"] == found["log"]
    assert (found["twice"], found["again"]) == (2, 0)
    assert found["same"]
