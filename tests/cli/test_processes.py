"""Whole processes: killed, interrupted, two at once, on a full disk."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL
from tests.small import evidence

ROOT = Path(__file__).parents[2]
# Slow enough to be met at work where SLEEP says so, and idle while it is slow.
SLOW = """
import os
import time
from tests import small
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = small.cnn()

    def forward(self, x):
        time.sleep(float(os.environ.get('SLEEP', 0)))
        return self.inner(x)

def factory():
    return Slow()
"""
# Not folded: the folded copy is traced, and a trace has no sleep in it.
WORDS = ["evaluate", "--no-fold", "-m", "slow.py:factory", "-d", "digits.npz", "--eps", "0.05", "--eps", "0.1"]
WORDS += ["-a", "fgsm", "-a", "pgd:steps=10", "-a", "noise:queries=20", "-b", "4", "-n", "12"]

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")
pytestmark = posix


def start(place: Path, sleep: float) -> subprocess.Popen[str]:
    """The command with its stderr in a file, which tells the stage it is in."""
    with open(place / "stderr", "w") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "robustkit", *WORDS, "--out", "run"],
            cwd=place, stdout=subprocess.DEVNULL, stderr=stderr,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SLEEP": str(sleep)},
        )  # fmt: skip


def reached(place: Path, stage: str, process: subprocess.Popen[str]) -> None:
    """Wait for a stage."""
    deadline = time.monotonic() + 90
    while stage not in (place / "stderr").read_text():
        assert process.poll() is None, (place / "stderr").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def slow(place) -> Path:
    (place / "slow.py").write_text(SLOW)
    return place


def test_a_run_that_is_killed_again_and_again_has_the_bytes_of_one_that_was_not(slow, robustkit):
    moments, rows = random.Random(0), []
    for stage in ("0.05 fgsm", "0.05 pgd", "0.1 pgd"):
        process = start(slow, 0.015)
        reached(slow, stage, process)
        time.sleep(moments.random())
        process.kill()

        assert process.wait() == -signal.SIGKILL
        assert not (slow / "run" / "results.csv").exists()
        rows.append(set(evidence(slow / "run")["attacked"]))
    process = start(slow, 0)
    assert process.wait(timeout=120) == 0
    assert robustkit(*WORDS, "-q", "--out", "whole").status == 0

    # Nothing that was there was lost, or done again with another end.
    assert rows[0] <= rows[1] <= rows[2] <= set(evidence(slow / "run")["attacked"])
    assert rows[0] < rows[2]
    for name in ("results.csv", "samples.csv"):
        assert (slow / "run" / name).read_bytes() == (slow / "whole" / name).read_bytes()
    for table in ("clean", "attacked", "picture"):
        assert evidence(slow / "run")[table] == evidence(slow / "whole")[table]


def test_ctrl_c_keeps_what_is_done_and_meanwhile_a_second_process_is_refused(slow, robustkit):
    process = start(slow, 0.06)
    reached(slow, "0.05 pgd", process)
    second = robustkit(*WORDS, "-q", "--out", "run")
    reader = robustkit("report", "run", "-o", "x.html")
    process.send_signal(signal.SIGINT)
    status, err = process.wait(timeout=60), (slow / "stderr").read_text()

    # The second was refused in one line, and the first did not notice.
    assert (second.status, second.err.count("\n")) == (2, 1)
    assert re.search("Error: .*run.*--out", second.err)
    # A reader either sees what is there or is told why not.
    assert reader.status == 0 or (reader.status, reader.err.count("\n")) == (2, 1)
    assert status == 130
    assert "Traceback" not in err
    assert re.search("Interrupted.*run.*same command goes on", err.splitlines()[-1])
    assert not (slow / "run" / "report.html").exists()

    assert evidence(slow / "run")["attacked"]
    assert robustkit("report", "run").status == 0
    assert robustkit(*WORDS, "-q", "--out", "run").status == 0
    assert robustkit(*WORDS, "-q", "--out", "whole").status == 0
    assert (slow / "run" / "samples.csv").read_bytes() == (slow / "whole" / "samples.csv").read_bytes()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    if not shutil.which("mount"):
        pytest.skip("there is no mount here")
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here (not root, or no mounts allowed)")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("size", ["4k", "40k", "80k", "120k", "160k", "200k"])
def test_a_full_disk_is_one_line_and_the_run_goes_on_once_there_is_room(size, place, robustkit):
    words = ("evaluate", "-q", "-m", "net.py:factory", "-d", "digits.npz", "-a", "fgsm", "-a", "pgd:steps=3")
    robustkit(*words, "--out", "whole")
    with small_disk(place / "disk", size):
        said = robustkit(*words, "--out", "disk/run")
        left = {file.name for file in (place / "disk").rglob("*") if file.is_file()}
        subprocess.run(["mount", "-o", "remount,size=20m", str(place / "disk")], check=True)
        again = robustkit(*words, "--out", "disk/run")
        same = (place / "disk" / "run" / "samples.csv").read_bytes() == (place / "whole" / "samples.csv").read_bytes()

    assert said.status == 2, said
    assert said.err.startswith("Error: ")
    assert said.err.count("\n") == 1
    assert "full" in said.err.lower() or "space" in said.err.lower()
    assert "report.html" not in left
    assert not [name for name in left if name.endswith(".part")]
    assert (again.status, same) == (0, True)


def test_a_run_on_a_read_only_disk_can_be_reported(place, robustkit):
    with small_disk(place / "disk", "5m"):
        robustkit(*SMALL, "--out", "disk/run")
        subprocess.run(["mount", "-o", "remount,ro", str(place / "disk")], check=True)
        said = robustkit("report", "disk/run", "-o", "x.html")
        writing = robustkit(*SMALL, "--seed", "1", "--out", "disk/other")

    assert said.status == 0, said.err
    assert (place / "x.html").exists()
    assert writing.status == 2
    assert "cannot be written" in writing.err
