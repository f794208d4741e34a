"""Several worker processes: the bytes of one process, whoever is killed, and nobody left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from robustkit import load_run
from robustkit.data import pick
from robustkit.evidence.consistency import contradictions_in
from tests.cli.conftest import DATA, NET
from tests.small import data, evidence, save

pytestmark = pytest.mark.slow  # each worker imports torch

ROOT = Path(__file__).parents[2]
# What happens in the forward passes of a worker, and never in the first process. Some of it cannot be traced, so that a
# worker would search on the network as it is, and the first process with BatchNorm folded: hence --no-fold.
DEEDS = """
import os, signal
from multiprocessing import parent_process
from robustkit.data import pick

CALLS = []

class Doing(torch.nn.Module):
    def __init__(self, deed):
        super().__init__()
        self.inner, self.deed = small.cnn(), deed

    def forward(self, x):
        CALLS.append(None)
        if parent_process() is not None:
            self.deed(x)
        return self.inner(x)

def once(number, name):
    def deed(x):
        if len(CALLS) > 40 and not os.path.exists("done"):
            open("done", "w").close()
            os.kill(os.getppid() if name == "parent" else os.getpid(), number)
    return deed

def poison(x):
    if (x - small.data(60)[0][17]).abs().flatten(1).amax(1).lt(0.05).any():
        os._exit(3)

def first_poison(x):
    if (x - small.data(60)[0][pick(60, None)[0]]).abs().flatten(1).amax(1).lt(0.05).any():
        os._exit(3)

def nothing():
    return Doing(lambda x: None)

def one_starts():
    def deed(x):
        try:
            os.close(os.open("started", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os._exit(9)
    return Doing(deed)

def none_starts():
    return Doing(lambda x: os._exit(9))

def worker_killed():
    return Doing(once(signal.SIGKILL, "self"))

def parent_killed():
    return Doing(once(signal.SIGKILL, "parent"))

def parent_interrupted():
    return Doing(once(signal.SIGINT, "parent"))

def poisoned():
    return Doing(poison)

def poisoned_first():
    return Doing(first_poison)
"""


@pytest.fixture
def robustkit(tmp_path):
    """`robustkit evaluate` in a process of its own; returns when no process holds its output any more."""
    (tmp_path / "net.py").write_text(NET + DEEDS)
    save(tmp_path / "digits.npz", *data(60))

    def command(model, out, *words):
        return subprocess.run(
            [sys.executable, "-m", "robustkit", "evaluate", "-q", "-m", f"net.py:{model}", "--name", "net", *DATA,
             "--no-fold", "--eps", "0.05", "--eps", "0.1", "--corruptions", "contrast", "--severity", "1", "--out", out,
             *words],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores Ctrl-C
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    return command


def files(folder):
    return [(folder / name).read_bytes() for name in ("results.csv", "samples.csv", "corruptions.csv")]


def test_one_and_two_workers_write_the_bytes_of_a_run_without(robustkit, tmp_path):
    asked = ((), ("--workers", "1"), ("--workers", "2"), ("--workers", "2", "--audit", "2"), ("--audit", "2"))
    for number, words in enumerate(asked):
        assert robustkit("nothing", str(number), *words).returncode == 0
    without, one, two, audited_by_two, audited = (files(tmp_path / str(number)) for number in range(len(asked)))

    assert without == one == two
    assert audited == audited_by_two


def test_a_killed_worker_costs_nothing_that_was_sent(robustkit, tmp_path):
    robustkit("nothing", "whole")

    assert robustkit("worker_killed", "killed", "--workers", "2").returncode == 0
    assert (tmp_path / "done").exists()
    assert files(tmp_path / "killed") == files(tmp_path / "whole")


@pytest.mark.parametrize(("model", "status"), [("parent_killed", -signal.SIGKILL), ("parent_interrupted", 130)])
def test_workers_end_with_the_first_process_and_the_run_goes_on(model, status, robustkit, tmp_path):
    ended = robustkit(model, "run", "--workers", "2")
    goes_on = robustkit(model, "run", "--workers", "2")
    robustkit("nothing", "whole")

    assert ended.returncode == status
    assert "Traceback" not in ended.stderr
    assert goes_on.returncode == 0
    assert files(tmp_path / "run") == files(tmp_path / "whole")


def test_an_image_that_ends_its_workers_is_an_error_and_the_others_are_finished(robustkit, tmp_path):
    robustkit("nothing", "whole")
    done = robustkit("poisoned", "run", "--workers", "2")
    run, whole = load_run(tmp_path / "run"), load_run(tmp_path / "whole")
    errors = run.samples[run.samples["verdict"] == "error"]
    rest = run.samples[run.samples["sample"] != 17].reset_index(drop=True)

    assert done.returncode == 0
    assert "image 17 ended every process that worked on it (status 3)" in " ".join(done.stdout.split())
    assert set(errors["sample"]) == {17}
    assert run.manifest["finished"]
    assert rest.equals(whole.samples[whole.samples["sample"] != 17].reset_index(drop=True))
    assert not list(contradictions_in(run))
    assert robustkit("poisoned", "run", "--workers", "2").stdout == done.stdout


def test_an_image_that_ends_workers_before_they_are_ready_is_an_error_and_the_others_are_finished(robustkit, tmp_path):
    robustkit("nothing", "whole")
    done = robustkit("poisoned_first", "run", "--workers", "2")
    run, whole, first = load_run(tmp_path / "run"), load_run(tmp_path / "whole"), pick(60, None)[0]
    rest = run.samples[run.samples["sample"] != first].reset_index(drop=True)

    assert done.returncode == 0, done.stderr
    assert set(run.samples.loc[run.samples["verdict"] == "error", "sample"]) == {first}
    assert rest.equals(whole.samples[whole.samples["sample"] != first].reset_index(drop=True))
    assert robustkit("poisoned_first", "run", "--workers", "2").stdout == done.stdout


def test_workers_keep_adversarial_examples_if_the_folder_was_begun_so(robustkit, tmp_path):
    for out, workers in (("one", ()), ("two", ("--workers", "2"))):
        assert robustkit("nothing", out, "-n", "20", "--keep-adversarial").returncode == 0
        assert robustkit("nothing", out, *workers).returncode == 0

    assert evidence(tmp_path / "two")["witness"] == evidence(tmp_path / "one")["witness"]


def test_a_run_goes_on_with_the_workers_that_could_start(robustkit, tmp_path):
    robustkit("nothing", "whole")
    done, none = robustkit("one_starts", "run", "--workers", "2"), robustkit("none_starts", "none", "--workers", "2")

    assert done.returncode == 0
    assert files(tmp_path / "run") == files(tmp_path / "whole")
    assert none.returncode == 2
    assert none.stderr.count("\n") == 1
