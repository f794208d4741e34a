"""The Slurm scripts of docs/large-runs.md on two hosts: `python bench/slurm.py [--images N]`, as root on Linux.

It needs Debian's packages slurm-wlm and munge. The hosts are the two network namespaces of `ray_hosts.py`, each with a
host name, processes and a slurmd of its own; slurmctld runs on the first. The scripts are those of the page but for the
numbers of tasks, nodes and processors and the names of files, and without their GPUs. One task of the array and the job
with Ray are cancelled in the middle and submitted again, as the page says. Each line ends with a digest of the run's
files.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from ray_hosts import HOSTS, NET, ROOT, Runs, hosts, require

import robustkit

FIRST = next(iter(HOSTS))
PAGE = ROOT / "docs" / "large-runs.md"
CHANGED = (
    ("--array=1-64", "--array=1-4"), ("/64", "/4"), ("--nodes=4", "--nodes=2"), ("--num-gpus 4 ", ""),
    ("#SBATCH --gres=gpu:1\n", ""), ("#SBATCH --gpus-per-node=4\n", ""),
    ("net.py:make --weights net.safetensors --mean 0.3 --std 0.4 --dataset images.npz",
     "net.py:Net --weights net.pt --dataset data.npz"),
)  # fmt: skip
CONFIGURATION = """
ClusterName=two
SlurmctldHost={first}({address})
SlurmUser=root
SlurmdUser=root
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MailProg=/bin/true
ReturnToService=2
KillWait=2
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP
"""
RUNNING = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED"}


def on(host: str, place: Path, *words: str) -> list[str]:
    """A command on a host, which has a name, processes and files of Ray of its own, and knows the other's name."""
    own = "mkdir -p /tmp/ray; mount -t tmpfs tmpfs /tmp/ray; mount -t tmpfs tmpfs /dev/shm"
    inside = f'hostname {host}; mount --bind {place}/hosts /etc/hosts; {own}; exec "$@"'
    apart = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["ip", "netns", "exec", host, *apart, "sh", "-c", inside, "sh", *words]


class Cluster:
    """Slurm on all hosts.

    Args:
        place: its files.
        folder: where jobs are submitted.
    """

    def __init__(self, place: Path, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.settings = {**os.environ, "SLURM_CONF": str(place / "slurm.conf"), "OMP_NUM_THREADS": "1"}

    def command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A command of Slurm, which may fail."""
        return subprocess.run(
            on(FIRST, self.place, *words), cwd=self.folder, env=self.settings, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    @property
    def idle(self) -> int:
        """How many nodes wait for work."""
        return int(self.command("sinfo", "-h", "-t", "idle", "-o", "%D").stdout.strip() or 0)

    def said(self, *words: str) -> str:
        """What a command of Slurm prints."""
        done = self.command(*words)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def submit(self, script: str, *words: str) -> str:
        """The number of a new job."""
        return self.said("sbatch", "--parsable", *words, script).strip()

    def states(self, job: str) -> set[str]:
        """The states of a job, or of the tasks of an array."""
        return set(re.findall(r"JobState=(\w+)", self.said("scontrol", "show", "job", job)))

    def finish(self, job: str) -> None:
        """Wait for the end of a job, all of whose tasks must have succeeded."""
        self.wait(job)
        if self.states(job) != {"COMPLETED"}:
            output = "\n".join(each.read_text() for each in sorted(self.folder.glob("slurm-*.out")))
            raise SystemExit(f"job {job}: {self.states(job)}\n{output}")

    def wait(self, job: str) -> None:
        while self.states(job) & RUNNING:
            time.sleep(0.5)

    def cancel(self, job: str, of: str) -> None:
        """End a job, or a task of the job `of`, in the middle."""
        self.said("scancel", job)
        while "CANCELLED" not in self.states(job) or (job == of and self.states(of) & RUNNING):
            time.sleep(0.5)


@contextmanager
def slurm(place: Path, folder: Path) -> Iterator[Cluster]:
    """A cluster of both hosts, each with one processor."""
    nodes = "\n".join(f"NodeName={host} NodeAddr={address} CPUs=1 State=UNKNOWN" for host, address in HOSTS.items())
    text = CONFIGURATION.format(first=FIRST, address=HOSTS[FIRST], place=place, nodes=nodes)
    (place / "slurm.conf").write_text(text)
    (place / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # is there, and is not asked for anything
    names = [f"{address} {host}" for host, address in {**HOSTS, "localhost": "127.0.0.1"}.items()]
    (place / "hosts").write_text("\n".join([*names, ""]))
    (place / "state").mkdir()
    subprocess.run(["service", "munge", "start"], check=True, stdout=subprocess.DEVNULL)
    cluster = Cluster(place, folder)
    daemons = [(FIRST, "slurmctld", "-D"), *((host, "slurmd", "-D", "-N", host) for host in HOSTS)]
    with (place / "daemons.log").open("w") as log:
        running = [subprocess.Popen(on(host, place, *words), env=cluster.settings, stdout=log, stderr=log)
                   for host, *words in daemons]  # fmt: skip
    try:
        for _ in range(60):
            time.sleep(1)
            if cluster.idle == len(HOSTS):
                break
            if any(each.poll() is not None for each in running):
                raise SystemExit(f"Slurm does not start:\n{(place / 'daemons.log').read_text()}")
        else:
            raise SystemExit(f"Slurm does not start:\n{(place / 'daemons.log').read_text()}")
        yield cluster
    finally:
        for each in running:
            each.kill()  # and with it all processes of its host's namespace
            each.wait()


def scripts() -> list[str]:
    """The Slurm scripts of the page, made smaller."""
    found = [block for block in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL) if "#SBATCH" in block]
    for old, new in CHANGED:
        found = [block.replace(old, new) for block in found]
    return [re.sub(r"--cpus-per-task=\d+", "--cpus-per-task=1", block) for block in found]


def prepare(folder: Path, images: int) -> None:
    """What the scripts name: a virtual environment, a network, its weights and data."""
    binaries = folder / "venv" / "bin"
    binaries.mkdir(parents=True)
    for name, module in (("robustkit", "robustkit"), ("ray", "ray.scripts.scripts")):
        (binaries / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
        (binaries / name).chmod(0o755)
    path = f"{binaries}:{Path(sys.executable).parent}:$PATH"
    (binaries / "activate").write_text(f"export PATH={path} PYTHONPATH={ROOT} OMP_NUM_THREADS=1\n")
    (folder / "net.py").write_text(f"{NET}\ndef Net():\n    return net()\n")
    names: dict[str, object] = {}
    exec((folder / "net.py").read_text(), names)
    make = names["Net"]
    assert callable(make)
    torch.save(make().state_dict(), folder / "net.pt")
    x, y = robustkit.load_dataset("digits", "train").batch(range(images))
    np.savez(folder / "data.npz", x=x.numpy(), y=y.numpy())
    array, with_ray = scripts() if "--array" in scripts()[0] else reversed(scripts())
    (folder / "evaluate.sbatch").write_text(array)
    (folder / "ray.sbatch").write_text(with_ray.replace("--out run ", "--out with-ray "))


def started(runs: Runs, job: Callable[[], bool], passes: int) -> None:
    """Wait until a process has made so many passes."""
    while not any(int(each.read_text() or 0) >= passes for each in runs.folder.glob("passes-*")):
        if not job():
            raise SystemExit("the job was over before it could be cancelled; take more --images")
        time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--passes", type=int, default=20, help="of a process, before its job is cancelled")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as own, hosts():
        runs = Runs(Path(place), asked.images)
        prepare(runs.folder, asked.images)
        found = []

        def tell(what: str, out: str) -> None:
            found.append(runs.digest(out))
            print(f"{what:<60} {found[-1]}", flush=True)

        words = ["evaluate", "-q", "--model", "net.py:Net", "--weights", "net.pt", "--dataset", "data.npz"]
        settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

        def here(*words: str) -> None:
            require(
                subprocess.Popen(
                    [sys.executable, "-m", "robustkit", *words], cwd=runs.folder, env=settings,
                    stdout=subprocess.DEVNULL,
                )
            )  # fmt: skip

        here(*words, "-n", "all", "--out", "one")
        tell("one process", "one")
        for old in runs.folder.glob("passes-*"):
            old.unlink()
        with slurm(Path(own), runs.folder) as cluster:
            print(cluster.said("sinfo", "--version").strip())
            with runs.slowed():
                job = cluster.submit("evaluate.sbatch")
                started(runs, lambda: bool(cluster.states(job) & RUNNING), asked.passes)
                cluster.cancel(f"{job}_1", job)
            cluster.wait(job)
            cluster.finish(cluster.submit("evaluate.sbatch", "--array=1"))
            here("merge", *(f"run/shard-{number}-of-4" for number in range(1, 5)), "--out", "run/merged")
            tell("array of 4 tasks, one cancelled and submitted again", "run/merged")
            for old in runs.folder.glob("passes-*"):
                old.unlink()
            with runs.slowed():
                job = cluster.submit("ray.sbatch")
                started(runs, lambda: bool(cluster.states(job) & RUNNING), asked.passes)
                cluster.cancel(job, job)
            cluster.finish(cluster.submit("ray.sbatch"))
            tell("Ray on 2 nodes, cancelled and submitted again", "with-ray")
    print("all the same" if len(set(found)) == 1 else "DIFFERENT")


if __name__ == "__main__":
    main()
