"""Whole processes: interrupted, two at once, on a full disk."""

import os
import re
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from robustkit.__main__ import start
from tests.cli.conftest import SMALL
from tests.small import cnn, evidence

# The model counts its calls in a file. In call number WAIT_AT it says so and waits for a line, so that a test meets it
# at work at any speed.
WAITING = """
import os
import signal
import sys
import torch
from torch import nn

# Where the tests run as a background job, SIGINT is ignored from the beginning.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Waiting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self._calls = torch.load("net.pt", weights_only=False), 0

    def forward(self, x):
        self._calls += 1
        with open("calls.txt", "w") as file:
            file.write(str(self._calls))
        if self._calls == int(os.environ.get("WAIT_AT", 0)):
            print("waiting", flush=True)
            sys.stdin.readline()
        return self.inner(x)

def factory():
    return Waiting()
"""
# Not folded: the folded copy of the network does not count its calls.
WORDS = (
    "evaluate",
    "-q",
    "--no-fold",
    "-m",
    "waiting.py:factory",
    "-d",
    "digits.npz",
    "-a",
    "fgsm",
    "-a",
    "pgd:steps=2",
)
WORDS = (*WORDS, "--eps", "0.05", "--eps", "0.1", "-b", "4", "-n", "8")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")


@dataclass
class Process:
    """The command in a forked process, which has everything imported."""

    number: int
    errors: Path

    def interrupted(self) -> tuple[int, str]:
        """Its status and what it printed as errors after Ctrl-C."""
        os.kill(self.number, signal.SIGINT)
        _, end = os.waitpid(self.number, 0)
        self.number = 0
        return os.waitstatus_to_exitcode(end), self.errors.read_text()


@contextmanager
def waiting(place: Path, call: int) -> Iterator[Process]:
    """The command in a process of its own, which waits in a call of the model."""
    errors, (said, say), (listen, held) = place.parent / "errors.txt", os.pipe(), os.pipe()
    process = Process(os.fork(), errors)
    if process.number == 0:
        _child(call, listen, say, errors)
    try:
        os.close(say)
        with open(said) as output:
            assert output.readline() == "waiting\n"
            yield process
    finally:
        if process.number:
            os.kill(process.number, signal.SIGKILL)
            os.waitpid(process.number, 0)
        os.close(listen)
        os.close(held)


def _child(call: int, listen: int, say: int, errors: Path) -> NoReturn:
    """What the shell would run, with its streams."""
    status = 1
    try:
        sys.stdin, sys.stdout, sys.stderr = os.fdopen(listen), os.fdopen(say, "w"), errors.open("w")
        os.environ["WAIT_AT"] = str(call)
        sys.argv = ["robustkit", *WORDS, "--out", "run"]
        start()
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def test_ctrl_c_keeps_what_is_done_and_meanwhile_a_second_process_is_refused(place, robustkit):
    (place / "waiting.py").write_text(WAITING)
    torch.save(cnn(), place / "net.pt")  # to fit it again takes the process longer than the evaluation
    assert robustkit(*WORDS, "--out", "whole").status == 0
    calls = int((place / "calls.txt").read_text())
    with waiting(place, call=calls // 2) as process:
        second = robustkit(*WORDS, "--out", "run")
        reader = robustkit("report", "run", "-o", "x.html")
        status, err = process.interrupted()

    # The second process is refused in one line, and the first goes on undisturbed.
    assert (second.status, second.err.count("\n")) == (2, 1)
    assert re.search("Error: .*run.*--out", second.err)
    # A report shows the rows so far, or is refused with the reason.
    assert reader.status == 0 or (reader.status, reader.err.count("\n")) == (2, 1)
    assert status == 130
    assert "Traceback" not in err
    assert re.search("Interrupted.*run.*same command goes on", err.splitlines()[-1])
    assert {file.suffix for file in (place / "run").iterdir()} == {".sqlite"}

    rows = evidence(place / "run")["attacked"]
    assert rows
    assert robustkit("report", "run").status == 0
    assert robustkit(*WORDS, "--out", "run").status == 0
    assert set(rows) < set(evidence(place / "run")["attacked"])
    assert (place / "run" / "samples.csv").read_bytes() == (place / "whole" / "samples.csv").read_bytes()


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


@pytest.mark.parametrize(
    "size", ["4k", "120k", *(pytest.param(size, marks=pytest.mark.slow) for size in ("40k", "80k", "160k", "200k"))]
)
def test_a_full_disk_is_reported_in_one_line_and_the_run_is_resumed_once_there_is_room(size, place, robustkit):
    words = ("evaluate", "-q", "-m", "net.py:factory", "-d", "digits.npz", "-a", "fgsm", "-a", "pgd:steps=3")
    robustkit(*words, "--out", "whole")
    with small_disk(place / "disk", size):
        full = robustkit(*words, "--out", "disk/run")
        left = {file.name for file in (place / "disk").rglob("*") if file.is_file()}
        subprocess.run(["mount", "-o", "remount,size=20m", str(place / "disk")], check=True)
        again = robustkit(*words, "--out", "disk/run")
        same = (place / "disk" / "run" / "samples.csv").read_bytes() == (place / "whole" / "samples.csv").read_bytes()

    assert full.status == 2, full
    assert re.fullmatch("Error: .*(full|space).*\n", full.err, re.IGNORECASE)
    assert "report.html" not in left
    assert not [name for name in left if name.endswith(".part")]
    assert (again.status, same) == (0, True)


def test_a_run_on_a_read_only_disk_can_be_reported(place, robustkit):
    with small_disk(place / "disk", "5m"):
        robustkit(*SMALL, "--out", "disk/run")
        subprocess.run(["mount", "-o", "remount,ro", str(place / "disk")], check=True)
        report = robustkit("report", "disk/run", "-o", "x.html")
        writing = robustkit(*SMALL, "--seed", "1", "--out", "disk/other")

    assert report.status == 0, report.err
    assert (place / "x.html").exists()
    assert writing.status == 2
    assert "cannot be written" in writing.err
