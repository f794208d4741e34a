"""`robustkit evaluate --shard`: the folders of all shards are merged into the files of one run, whatever happened."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import DATA, MODEL, NET
from tests.cli.test_bad_input import refused

EVALUATE = ("evaluate", "-q", *DATA, "-a", "fgsm", "--eps", "0.1")
# A network whose process, if it is meant to, is killed at a forward pass.
DEADLY = """
import os, signal

class Deadly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = small.cnn()

    def forward(self, x):
        CALLS.append(None)
        if len(CALLS) > 20 and "DEADLY" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(x)

CALLS = []

def deadly():
    return Deadly()
"""


def test_an_array_of_jobs_makes_a_run(place, robustkit, monkeypatch):
    assert robustkit(*EVALUATE, *MODEL, "--out", "whole").status == 0
    for task in (0, 1):
        for name, value in {"ID": task, "COUNT": 2, "MIN": 0, "MAX": 1}.items():
            monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
        printed = robustkit(*EVALUATE, *MODEL, "--out", "run", "--shard", "auto", "--fail-under", "clean>=1")
        assert printed.status == 0
        assert f"Shard {task + 1}/2 is finished." in printed.out
    assert robustkit("merge", "run/shard-1-of-2", "run/shard-2-of-2", "--out", "merged").status == 0
    said = robustkit(*EVALUATE, *MODEL, "--out", "whole").err

    assert Path("merged/samples.csv").read_bytes() == Path("whole/samples.csv").read_bytes()
    assert robustkit("verify", "merged").status == 0
    assert "SLURM_ARRAY_TASK_COUNT is 2, and each of these processes evaluates all images" in said
    assert robustkit("gate", "run/shard-1-of-2", "--fail-under", "clean>=0").status == 2
    judged = robustkit("gate", "merged")  # by the condition that each shard stored
    assert (judged.status, "clean: " in judged.out and "is below 100 %" in judged.out) == (1, True)


def test_a_shard_trains_nothing(robustkit):
    refused(
        robustkit("evaluate", "-q", "-m", "resnet18", "--shard", "1/2", "--out", "run"), "resnet18", "without --shard"
    )


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 8])
def test_a_shard_that_is_killed_and_submitted_again_changes_no_byte(count, place, robustkit):
    (place / "net.py").write_text(NET + DEADLY)
    wanted = ("evaluate", "-q", "-m", "net.py:deadly", *DATA, "--eps", "0.05", "--eps", "0.1")
    killed = subprocess.run(
        [sys.executable, "-m", "robustkit", *wanted, "--out", "run", "--shard", f"2/{count}"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1", "DEADLY": "yes"},
        check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL

    folders = [f"run/shard-{index}-of-{count}" for index in range(1, count + 1)]
    for index in range(1, count + 1):
        assert robustkit(*wanted, "--out", "run", "--shard", f"{index}/{count}").status == 0
    robustkit("merge", *folders, "--out", "merged")
    robustkit(*wanted, "--out", "whole")

    for name in ("results.csv", "samples.csv"):
        assert Path("merged", name).read_bytes() == Path("whole", name).read_bytes()
