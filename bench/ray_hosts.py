"""One run on two hosts, one of which is lost: `python bench/ray_hosts.py [--images N]`, as root on Linux.

The hosts are two network namespaces joined by a veth pair; each is a node of a Ray cluster with one processor, and the
first has the head and the coordinator. The same evaluation is made by one process, by 3 shards, by 8 shards of which
one is killed and started again, by Ray on one host, by Ray on two hosts of which the second loses every process at once
by SIGKILL in the middle of the run, and comes back, and by a coordinator that is killed and started again. Each line
ends with a digest of the run's files, in which the rows of all images have one order.
"""

import argparse
import hashlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
NET = """
import os
import time
from pathlib import Path

import torch
from torch import nn

class Counting(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.passes = inner, 0

    def forward(self, x):
        self.passes += 1
        if self.passes % 5 == 0:
            Path(f"passes-{os.getpid()}").write_text(str(self.passes))
        if os.path.exists("slow"):
            time.sleep(0.5)
        return self.inner(x)

def net():
    return Counting(_net())

def _net():
    generator = torch.Generator().manual_seed(1)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10)).eval()
    with torch.no_grad():
        for weight in net.parameters():
            spread = (2 / max(1, weight[0].numel())) ** 0.5 if weight.dim() > 1 else 0.1
            weight.copy_(spread * torch.randn(weight.shape, generator=generator))
    return net
"""
HOSTS = {"rk-a": "10.77.0.1", "rk-b": "10.77.0.2"}
HEAD = f"{HOSTS['rk-a']}:6379"
TOKEN = secrets.token_hex(32)
SETTINGS = {
    **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN,
}  # fmt: skip


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def end(host: str) -> int:
    """Kill every process of a host; how many there were."""
    count = 0
    while pids := ip("netns", "pids", host).split():
        for pid in pids:
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
            count += 1
        time.sleep(0.1)
    return count


@contextmanager
def hosts() -> Iterator[None]:
    """Two network namespaces that see each other and nothing else."""
    try:
        for host in HOSTS:
            ip("netns", "add", host)
        first, second = HOSTS
        ip("link", "add", "rk-veth", "netns", first, "type", "veth", "peer", "name", "rk-veth", "netns", second)
        for host, address in HOSTS.items():
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "rk-veth")
            for device in ("lo", "rk-veth"):
                ip("-n", host, "link", "set", device, "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "pids", host], check=False, capture_output=True)
            if host in ip("netns", "list"):
                end(host)
                ip("netns", "del", host)


def start_ray(host: str) -> None:
    """A node of one processor on a host."""
    place = ["--head", "--port=6379", "--include-dashboard=false"] if host == "rk-a" else [f"--address={HEAD}"]
    subprocess.run(
        ["ip", "netns", "exec", host, sys.executable, "-m", "ray.scripts.scripts", "start", *place, "--num-cpus=1",
         f"--node-ip-address={HOSTS[host]}", "--object-store-memory=100000000", "--disable-usage-stats"],
        check=True, env=SETTINGS, stdout=subprocess.DEVNULL,
    )  # fmt: skip


class Runs:
    """Evaluations in one folder."""

    def __init__(self, folder: Path, images: int) -> None:
        self.folder, self.images = folder, images
        (folder / "net.py").write_text(NET)

    def start(self, out: str, *words: str, host: str | None = None) -> "subprocess.Popen[bytes]":
        place = [] if host is None else ["ip", "netns", "exec", host]
        words = words if host is None else ("--backend", "ray", "--ray-address", HEAD, *words)
        return subprocess.Popen(
            [*place, sys.executable, "-m", "robustkit", "evaluate", "-q", "-m", "net.py:net", "-n", str(self.images),
             "--split", "train", "--eps", "0.02", "--eps", "0.1", "-a", "fgsm", "-a", "default", "--out", out, *words],
            cwd=self.folder, env=SETTINGS, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def finish(self, out: str, *words: str, host: str | None = None) -> None:
        require(self.start(out, *words, host=host))

    def sharded(self, out: str, count: int, killed: int | None = None, passes: int = 0) -> None:
        """All shards and their merge; shard `killed` ends by SIGKILL after some passes, and is started again."""
        for number in range(1, count + 1):
            shard = "--shard", f"{number}/{count}"
            if number == killed:
                self.start_and_kill(out, *shard, passes=passes)
            self.finish(out, *shard)
        parts = [f"{out}/shard-{number + 1}-of-{count}" for number in range(count)]
        require(
            subprocess.Popen(
                [sys.executable, "-m", "robustkit", "merge", *parts, "--out", f"{out}/merged"],
                cwd=self.folder, env=SETTINGS, stdout=subprocess.DEVNULL,
            )
        )  # fmt: skip

    def start_and_kill(self, out: str, *words: str, passes: int) -> None:
        """End a run on this host by SIGKILL after some passes."""
        with self.slowed():
            running = self.start(out, *words)
            self.wait_for_passes(lambda: [str(running.pid)], running, passes)
            kill(running)

    @contextmanager
    def slowed(self) -> Iterator[None]:
        """Each pass takes half a second longer, so that there is time to kill somebody."""
        (self.folder / "slow").touch()
        yield
        (self.folder / "slow").unlink()

    def wait_for_passes(
        self, pids: Callable[[], Iterable[str]], running: "subprocess.Popen[bytes]", passes: int
    ) -> None:
        """Wait until one of some processes has made so many passes."""
        while running.poll() is None:
            for pid in pids():
                count = self.folder / f"passes-{pid}"
                if count.exists() and int(count.read_text() or 0) >= passes:
                    return
            time.sleep(0.1)
        raise SystemExit("the run was over before anything could be killed; take more --images")

    def digest(self, out: str) -> str:
        content = b"".join((self.folder / out / name).read_bytes() for name in ("results.csv", "samples.csv"))
        return hashlib.sha256(content).hexdigest()[:16]


def kill(running: "subprocess.Popen[bytes]") -> None:
    running.kill()
    running.wait()


def require(running: "subprocess.Popen[bytes]") -> None:
    if running.wait():
        raise SystemExit("a run failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--passes", type=int, default=20, help="of a worker, before its host is killed")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, hosts():
        runs = Runs(Path(place), asked.images)
        found = []

        def tell(what: str, out: str) -> None:
            found.append(runs.digest(out))
            print(f"{what:<60} {found[-1]}", flush=True)

        runs.finish("serial")
        tell("one process", "serial")
        runs.sharded("3", 3)
        tell("3 shards", "3/merged")
        runs.sharded("8", 8, killed=5, passes=asked.passes)
        tell("8 shards, one of them killed and started again", "8/merged")
        first, second = HOSTS

        def on_second() -> list[str]:
            return ip("netns", "pids", second).split()

        start_ray(first)
        runs.finish("one", host=first)
        tell("Ray on one host", "one")
        start_ray(second)
        with runs.slowed():
            running = runs.start("two", host=first)
            runs.wait_for_passes(on_second, running, asked.passes)
            count = end(second)
            start_ray(second)
            runs.wait_for_passes(on_second, running, asked.passes)
        require(running)
        tell(f"Ray on two hosts, {count} processes of one killed, and back", "two")
        with runs.slowed():
            running = runs.start("again", host=first)
            runs.wait_for_passes(on_second, running, asked.passes)
            kill(running)
        runs.finish("again", host=first)
        tell("Ray on two hosts, coordinator killed and started again", "again")
    print("all the same" if len(set(found)) == 1 else "DIFFERENT")


if __name__ == "__main__":
    main()
