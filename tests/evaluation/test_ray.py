"""Workers on the nodes of a Ray cluster: the bytes of one process, whoever is lost, and a bounded wait."""

import os
import secrets
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from robustkit import load_run
from tests.cli.conftest import DATA, NET
from tests.small import data, save

# Each test starts a run, whose workers import torch; Ray itself is imported by none of them.
pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")]

ROOT = Path(__file__).parents[2]
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
TOKEN = secrets.token_hex(32)
SETTINGS = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
# What happens in the forward passes of a worker, and never in the first process; --no-fold as in test_crew.py.
DEEDS = """
import os, time

class Doing(torch.nn.Module):
    def __init__(self, deed):
        super().__init__()
        self.inner, self.deed, self.calls = small.cnn(), deed, 0

    def forward(self, x):
        self.calls += 1
        if "RAY_RAYLET_PID" in os.environ:
            self.deed(x, self.calls)
        return self.inner(x)

def nothing():
    return Doing(lambda x, calls: None)

def waits():
    def deed(x, calls):
        # In the middle of its work, until it is killed or may go on.
        if calls == 20 and not os.path.exists("go-on"):
            open(f"waits-{os.environ['RAY_RAYLET_PID']}-{os.getpid()}", "w").close()
            while not os.path.exists("go-on"):
                time.sleep(0.05)
    return Doing(deed)

def poisoned():
    def deed(x, calls):
        if (x - small.data(60)[0][17]).abs().flatten(1).amax(1).lt(0.05).any():
            os._exit(3)
    return Doing(deed)
"""


class Nodes:
    """A cluster whose head has one processor."""

    def __init__(self):
        self.settings = {**SETTINGS, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
        script = Path(__file__).with_name("ray_nodes.py")
        self.process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.settings
        )
        self.address, self.head = self.process.stdout.readline().split()

    def change(self, word):
        """The raylet of the node that was added or killed."""
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def nodes():
    nodes = Nodes()
    yield nodes
    nodes.process.communicate(timeout=120)


class Runs:
    """`robustkit evaluate` in processes of their own."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "net.py").write_text(NET + DEEDS)
        save(folder / "digits.npz", *data(60))

    def start(self, model, out, nodes=None, *words, **settings):
        cluster = () if nodes is None else ("--backend", "ray", "--ray-address", nodes.address)
        return subprocess.Popen(
            [sys.executable, "-m", "robustkit", "evaluate", "-q", "-m", f"net.py:{model}", "--name", "net", *DATA,
             "--no-fold", "--eps", "0.05", "--eps", "0.1", "--out", out, *cluster, *words],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**(SETTINGS if nodes is None else nodes.settings), **settings},
        )  # fmt: skip

    def finish(self, *words, **settings):
        return self.finished(self.start(*words, **settings))

    def finished(self, running):
        out, err = running.communicate(timeout=300)
        return subprocess.CompletedProcess(running.args, running.returncode, out, err)

    def waiting(self, running, raylet="*"):
        """The process id of a worker that waits."""
        while not (found := list(self.folder.glob(f"waits-{raylet}-*"))):
            assert running.poll() is None, running.communicate()[1]
            time.sleep(0.1)
        return int(found[0].name.split("-")[-1])

    def go_on(self):
        (self.folder / "go-on").touch()

    def files(self, out):
        return [(self.folder / out / name).read_bytes() for name in ("results.csv", "samples.csv")]


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of a run in one process."""
    runs = Runs(tmp_path_factory.mktemp("whole"))
    assert runs.finish("waits", "whole").returncode == 0
    return runs.files("whole")


def test_nodes_join_and_are_lost_and_every_image_is_attacked(runs, nodes, whole):
    running = runs.start("waits", "run", nodes)
    runs.waiting(running, nodes.head)
    second = nodes.change("add")
    runs.waiting(running, second)
    nodes.change("kill")
    runs.go_on()
    done = runs.finished(running)
    evidence = (runs.folder / "run" / "run.sqlite").read_bytes()

    assert done.returncode == 0, done.stderr
    assert "raylet" not in done.stdout + done.stderr
    assert runs.files("run") == whole
    assert TOKEN.encode() not in evidence
    assert nodes.address.encode() not in evidence


def test_a_killed_worker_costs_nothing_that_was_sent(runs, nodes, whole):
    running = runs.start("waits", "run", nodes)
    os.kill(runs.waiting(running), signal.SIGKILL)
    runs.go_on()

    assert runs.finished(running).returncode == 0
    assert runs.files("run") == whole


def test_a_run_goes_on_after_its_first_process_was_killed(runs, nodes, whole):
    running = runs.start("waits", "run", nodes)
    worker = runs.waiting(running)
    running.kill()
    runs.finished(running)
    runs.go_on()

    assert runs.finish("waits", "run", nodes).returncode == 0
    assert runs.files("run") == whole
    assert not Path(f"/proc/{worker}").exists()


def test_an_image_that_ends_its_workers_is_an_error_and_the_others_are_finished(runs, nodes):
    done, alone = runs.finish("poisoned", "run", nodes, "-n", "40"), runs.finish("poisoned", "alone", None, "-n", "40")
    run, whole = load_run(runs.folder / "run"), load_run(runs.folder / "alone")
    errors = run.samples[run.samples["verdict"] == "error"]
    rest = run.samples[run.samples["sample"] != 17].reset_index(drop=True)

    assert (done.returncode, alone.returncode) == (0, 0), done.stderr
    assert "image 17 ended every process that worked on it (worker lost)" in " ".join(done.stdout.split())
    assert set(errors["sample"]) == {17}
    assert rest.equals(whole.samples[whole.samples["sample"] != 17].reset_index(drop=True))


def test_another_token_is_refused_with_one_line(runs, nodes):
    refused = runs.finish("nothing", "run", nodes, RAY_AUTH_TOKEN=secrets.token_hex(32))

    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "RAY_AUTH_TOKEN" in refused.stderr


def test_a_cluster_of_this_machine_listens_to_nobody_else_and_writes_no_token(runs, whole):
    mark = secrets.token_hex(8)
    running = runs.start("waits", "run", None, "--backend", "ray", HOME="/proc/nowhere", ROBUSTKIT_TEST=mark)
    runs.waiting(running)
    addresses = listening(mark)
    runs.go_on()
    done = runs.finished(running)

    assert addresses
    assert not [address for address in addresses if address not in LOOPBACK]
    assert done.returncode == 0, done.stderr
    assert runs.files("run") == whole
    assert not processes(mark)


def processes(mark):
    """The processes that inherited a mark."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes():
                found.append(place)
        except OSError:  # it has ended
            continue
    return found


def listening(mark):
    """The local addresses, in hex, at which marked processes listen."""
    sockets = {os.readlink(each) for place in processes(mark) for each in (place / "fd").iterdir() if each.is_symlink()}
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return [words[1].rpartition(":")[0] for words in lines if words[3] == "0A" and f"socket:[{words[9]}]" in sockets]
