"""What a second worker process gains: `python bench/workers.py [--images N] [--repeats K] [--width W] [--quiet]`.

The grid is uneven: three small networks of random weights that differ in size, two radii, a single step, a hundred
steps, and an ensemble whose later members attack few images. `robustkit evaluate --workers 1`, the same with
`--workers 2`, and two runs of one worker at once are started in turns, and the files of the first two are compared. On
a quiet machine the efficiency is the wall time of one worker over twice that of two. Other people's work on the same
cores slows two workers more than one; so the second ratio compares two workers with half the time of two independent
runs at once, which have the same cores and twice the work; `--quiet` leaves it out.

The third is by processor time, which other people's work lengthens less: that of the first process and of one worker,
over twice that of the first process and of the busier of two workers. It takes the first process to do nothing while
its workers compute, so on a quiet machine the first ratio should be larger. Processor times are read from /proc.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).parents[1]
NET = """
import torch
from torch import nn

def _net(width, depth):
    generator = torch.Generator().manual_seed(width)
    layers = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 10)).eval()
    with torch.no_grad():
        for weight in net.parameters():
            spread = (2 / max(1, weight[0].numel())) ** 0.5 if weight.dim() > 1 else 0.1
            weight.copy_(spread * torch.randn(weight.shape, generator=generator))
    return net

def small(width=1):
    return _net(8 * width, 1)

def middle(width=1):
    return _net(24 * width, 2)

def large(width=1):
    return _net(48 * width, 4)
"""


def command(folder: Path, out: str, workers: int, asked: argparse.Namespace) -> list[str]:
    models = [word for name in ("small", "middle", "large") for word in ("-m", f"net.py:{name}(width={asked.width})")]
    return [sys.executable, "-m", "robustkit", "evaluate", "-q", *models, "-n", str(asked.images), "--split", "train",
            "--eps", "0.02", "--eps", "0.1", "-a", "fgsm", "-a", "apgd:steps=100", "-a", "default",
            "--workers", str(workers), "--out", str(folder / out)]  # fmt: skip


class Spent(NamedTuple):
    """What runs took, in seconds."""

    wall: float
    first: float  # processor time of a first process
    workers: tuple[float, ...]  # processor time of each of its workers, the busiest first

    @property
    def longest(self) -> float:
        """The first process and then its busiest worker."""
        return self.first + max(self.workers)

    def __str__(self) -> str:
        each = " + ".join(f"{worker:.1f}" for worker in self.workers)
        return f"{self.wall:.1f} s, CPU {self.first:.1f} + {each} s"


def cpu_seconds(process: Path) -> float:
    """Processor time of a process so far."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spent(folder: Path, outs: list[str], workers: int, asked: argparse.Namespace) -> Spent:
    """Time of as many runs at once as there are folders; processor time of the first of them."""
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    start = time.perf_counter()
    running = [
        subprocess.Popen(command(folder, out, workers, asked), cwd=folder, env=settings, stdout=subprocess.DEVNULL)
        for out in outs
    ]
    cpu: dict[str, float] = {}
    while running[0].poll() is None:
        children = Path(f"/proc/{running[0].pid}/task/{running[0].pid}/children")
        for number in (str(running[0].pid), *children.read_text().split()):
            with suppress(OSError, IndexError):  # it has ended
                cpu[number] = cpu_seconds(Path("/proc", number))
        time.sleep(0.1)
    if any(each.wait() for each in running):
        raise SystemExit("a run failed")
    first = cpu.pop(str(running[0].pid))
    # Others that it starts are those of multiprocessing and of shells, and take no time.
    return Spent(time.perf_counter() - start, first, tuple(sorted(cpu.values(), reverse=True)[:workers]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--width", type=int, default=1, help="times the channels of each network: longer runs")
    parser.add_argument("--quiet", action="store_true", help="the machine is: no two runs at once")
    asked = parser.parse_args()
    print(
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores"
    )
    alone, together, by_cpu = [], [], []
    for turn in range(asked.repeats):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "net.py").write_text(NET)
            one = spent(folder, ["one"], 1, asked)
            two = spent(folder, ["two"], 2, asked)
            both = None if asked.quiet else spent(folder, ["first", "second"], 1, asked)
            same = all((folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()
                       for name in ("results.csv", "samples.csv"))  # fmt: skip
        alone.append(one.wall / (2 * two.wall))
        by_cpu.append(one.longest / (2 * two.longest))
        times = f"one worker {one}; two {two}"
        if both is not None:
            together.append(both.wall / (2 * two.wall))
            times += f"; two runs at once {both.wall:.1f} s"
        print(f"turn {turn + 1}: {times}; files equal: {same}", flush=True)
    print(f"efficiency over one worker: median {statistics.median(alone):.2f}")
    if together:
        print(f"efficiency over two independent runs at once: median {statistics.median(together):.2f}")
    print(f"efficiency by processor time: median {statistics.median(by_cpu):.2f}")


if __name__ == "__main__":
    main()
