"""What needs a process of its own: Ctrl-C while libraries are imported."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The signal comes when the import of this library begins, as if a user had pressed Ctrl-C just then.
START = """
import importlib.abc, os, signal, sys

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
sys.argv = ["robustkit", *{words!r}]
from robustkit.__main__ import start
start()
"""
EVALUATE = ("evaluate", "-q", "-m", "net.py:factory", "-d", "digits.npz", "-a", "fgsm", "--eps", "0.1")


@pytest.mark.parametrize("name", [pytest.param("robustkit.cli", marks=pytest.mark.slow), "torch.nn"])
def test_ctrl_c_during_an_import_is_one_line_and_status_130(name, place):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = START.format(name=name, words=EVALUATE)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=place, env=environment, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )  # fmt: skip

    assert ended.returncode == 130
    assert ended.stderr.strip().startswith("Interrupted.")
    assert ended.stderr.strip().count("\n") == 0
