"""Is samples.csv the same for every batch size, and after `kill -9`? On the MNIST network of the tutorials.

    python bench/exactness_runs.py [--zoo DIR] [--threads 1,2,3] [--images 100] [--kills 3]
    MKL_ENABLE_INSTRUCTIONS=AVX2 ATEN_CPU_CAPABILITY=avx2 python bench/exactness_runs.py

Two convolutions and two linear layers (320-50-10), briefly trained; the 50 inputs of the last layer are no multiple of
4, and there MKL rounds by the place in the batch. Digits are enlarged to 28 x 28; with --zoo it is MNIST. Each run is a
process, `robustkit evaluate -b SIZE` in L2 and Linf. One more, of -b 7, is killed at random moments and resumed.
"""

import argparse
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from robustkit import load_dataset

SIZES = (64, 1, 7, 24, 100)  # the others are compared with the first
ATTACKS = ("-a", "pgd:steps=10", "-a", "apgd-ce:steps=10", "-a", "square:queries=30")
RADII = ("--norm", "L2", "--norm", "Linf", "--eps", "L2:1.0", "--eps", "Linf:0.1")


def tutorial() -> nn.Module:
    """The network of PyTorch's first MNIST examples, without their dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def main() -> None:
    """Print a line for each number of threads and comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, help="folder with zoo.py, for MNIST in place of digits")
    parser.add_argument("--threads", default="1,2,3")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which runs are killed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, *images_of(options.zoo), options.images)
        for threads in map(int, options.threads.split(",")):
            first, *others = (Command(folder, f"{threads}-{size}", size, threads) for size in SIZES)
            seconds = first.run()
            for command in others:
                command.run()
                print(f"{threads} threads, -b {command.size}: {difference(first.out, command.out)}", flush=True)
            killed = Command(folder, f"{threads}-killed", 7, threads)
            # Each start repeats the checks of the model, so that even the sum of these is less than a run.
            longest, moments = 1.3 * seconds / options.kills, random.Random(options.seed + threads)
            rows = killed.kill([moments.uniform(0, longest) for _ in range(options.kills)])
            killed.run()
            stops = f"killed at {', '.join(map(str, rows))} rows"
            print(f"{threads} threads, {stops}: {difference(first.out, killed.out)}", flush=True)


def images_of(zoo: Path | None) -> tuple[Tensor, Tensor]:
    """Images of 28 x 28 pixels and their labels."""
    if zoo is None:
        data = load_dataset("digits", "train")
        x, y = data.batch(range(len(data)))
        return nn.functional.interpolate(x, size=(28, 28), mode="bilinear"), y
    sys.path.insert(0, str(zoo))
    from zoo import images

    return images("mnist")


def prepare(folder: Path, x: Tensor, y: Tensor, count: int) -> None:
    """Train the network on all images but the first `count`, and save it with these."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = tutorial()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(5):
        for rows in torch.randperm(len(x) - count).add(count).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    save_file(model.state_dict(), folder / "net.safetensors")
    np.savez(folder / "images.npz", x=x[:count].numpy(), y=y[:count].numpy())


class Command(NamedTuple):
    """One evaluation, in a process of its own."""

    folder: Path
    name: str
    size: int
    threads: int
    environment: Mapping[str, str] = {}

    @property
    def out(self) -> Path:
        return self.folder / self.name

    def start(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "robustkit", "evaluate", "-q", "-m", f"{Path(__file__).resolve()}:tutorial"]
        words += ["--weights", str(self.folder / "net.safetensors"), "-d", str(self.folder / "images.npz")]
        words += [*ATTACKS, *RADII, "-b", str(self.size), "-o", str(self.out)]
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.threads), **self.environment}
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment)

    def run(self) -> float:
        """Run or resume it to its end; seconds since it opened its evidence."""
        with self.start() as process:
            since = self._begun(process)
        if process.returncode:
            raise SystemExit(f"{self.name} ended with status {process.returncode}")
        return time.monotonic() - since

    def kill(self, moments: Sequence[float]) -> list[int]:
        """Start it, and kill it so many seconds after it opened its evidence, again and again.

        Returns:
            The number of rows of attacks on the disk after each kill.
        """
        rows = []
        for moment in moments:
            with self.start() as process:
                self._begun(process)
                time.sleep(moment)
                process.kill()
            if process.returncode == 0:
                raise SystemExit("the run had ended before it was killed: more --images are needed")
            rows.append(len(table_rows(self.out, "attacked")[0]))
        return rows

    def _begun(self, process: subprocess.Popen[bytes]) -> float:
        """Wait until the process writes its evidence, which nobody else can read meanwhile; the time."""
        log = self.out / "run.sqlite-wal"
        before = log.stat() if log.exists() else None
        while (log.stat() if log.exists() else None) == before and process.poll() is None:
            time.sleep(0.02)
        return time.monotonic()


def table_rows(out: Path, *tables: str) -> list[list[tuple[object, ...]]]:
    """All rows of tables of a run, in an order of their own."""
    with closing(sqlite3.connect(f"file:{out / 'run.sqlite'}?mode=ro", uri=True)) as file:
        return [sorted(file.execute(f"SELECT * FROM {table}"), key=repr) for table in tables]


def difference(one: Path, other: Path) -> str:
    """What is not equal in two runs: bytes of files, values of columns, stored adversarial examples."""
    frames = [pd.read_csv(out / "samples.csv", dtype=str, keep_default_na=False) for out in (one, other)]
    if len(frames[0]) != len(frames[1]):
        return f"DIFFERENT: {len(frames[0])} and {len(frames[1])} rows"
    unequal = frames[0] != frames[1]
    columns = ", ".join(f"{name} in {count} rows" for name, count in unequal.sum().items() if count)
    files = [name for name in ("results.csv", "samples.csv") if _bytes(one / name) != _bytes(other / name)]
    pictures = [table_rows(out, "picture")[0] for out in (one, other)]
    moved = len(set(pictures[0]) ^ set(pictures[1])) // 2
    if columns or files or moved:
        return f"DIFFERENT: {columns}; {' and '.join(files)}; {moved} of {len(pictures[0])} stored images"
    return f"equal, {len(frames[0])} rows and {len(pictures[0])} stored images"


def _bytes(file: Path) -> bytes:
    return file.read_bytes()


if __name__ == "__main__":
    main()
