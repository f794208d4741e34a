"""How long the files of a large run take, and how much memory: report.html, results.csv and samples.csv.

    python bench/rendering.py [--images 10000] [--attacks 10] [--models 5] [--radii 1]

It writes a run's evidence through the store, as an evaluation does, from made-up verdicts, and renders it in a process
of its own. The figures are in the README of this folder, under "Large runs".
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from robustkit.evidence.rows import AttackRecord, CleanRecord, PictureRecord
from robustkit.evidence.store import SCHEMA, Store

CLASSES = 10
STEPS = 40
_RENDER = """
import resource, sys, time
from pathlib import Path
from robustkit.evidence.reading import load_run
from robustkit.reports import write_csv, write_report
folder, marks = Path(sys.argv[1]), [(time.perf_counter(), time.process_time())]
run = load_run(folder)
marks.append((time.perf_counter(), time.process_time()))
write_report([run], folder / "report.html")
marks.append((time.perf_counter(), time.process_time()))
write_csv(run, folder)
marks.append((time.perf_counter(), time.process_time()))
names = "load", "report", "CSV", "together"
for name, (wall, spent), (later, total) in zip(names, [*marks[:3], marks[0]], [*marks[1:], marks[3]]):
    print(f"{name}: {later - wall:.1f} s, of which {total - spent:.1f} s on the processor")
print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
"""


def write_evidence(folder: Path, models: int, attacks: int, images: int, radii: int) -> None:
    rng = np.random.default_rng(0)
    store = Store(folder)
    threats = [["Linf", f"{k}/255"] for k in range(8, 8 * radii + 1, 8)]
    names = [f"attack-{k}" for k in range(attacks)]
    store.set_manifest(**manifest(threats, names, models, images))
    labels = rng.integers(0, CLASSES, images)
    for number in range(models):
        model = f"model-{number}"
        right = rng.random(images) < 0.9
        store.write(clean_rows(model, labels, right))
        margin = rng.gamma(2.0, 4.0 + number, images)
        for norm, eps in threats:
            for k, attack in enumerate(names):
                found = right & (
                    margin * (1 + 0.5 * rng.random(images)) < float(eps.partition("/")[0]) * (0.7 + 0.05 * k)
                )
                store.write(attack_rows((model, norm, eps, attack), labels, right, found, rng))
                store.write(picture_rows((model, norm, eps, attack), right))
    store.close()


def manifest(threats: list[list[str]], names: list[str], models: int, images: int) -> dict[str, object]:
    listed = [{"name": f"model-{number}", "source": "made up", "sha256": "ab" * 32} for number in range(models)]
    identity = {
        "schema": SCHEMA, "n": images, "models": listed, "threats": threats, "seed": 0,
        "dataset": {"name": "cifar10", "split": "test", "sha256": "cd" * 32},
        "class_names": [f"class {k}" for k in range(CLASSES)],
        "attacks": [{"name": name, "attack": "PGD", "steps": STEPS} for name in names],
    }  # fmt: skip
    stages = [f"{norm} {eps} {name}" for norm, eps in threats for name in names]
    return {
        "identity": identity, "robustkit": "0.1.0", "created": "2026-01-01T00:00:00+00:00", "command": "made up",
        "finished": "2026-01-01T01:00:00+00:00", "warnings": [], "environment": {},
        "seconds": {f"{one['name']} {stage}": 1.0 for one in listed for stage in stages},
    }  # fmt: skip


def clean_rows(model: str, labels: np.ndarray, right: np.ndarray) -> Iterator[CleanRecord]:
    for number, (label, is_right) in enumerate(zip(labels.tolist(), right.tolist(), strict=True)):
        yield CleanRecord(model, number, label, label if is_right else (label + 1) % CLASSES, "1 2 3")


def attack_rows(
    key: tuple[str, str, str, str], labels: np.ndarray, right: np.ndarray, found: np.ndarray, rng: np.random.Generator
) -> Iterator[AttackRecord]:
    # The distance in Linf is mostly the radius; the others differ from image to image, and take long to write as text.
    l2, l1 = rng.uniform(0.5, 1.7, len(right)).tolist(), rng.uniform(20, 90, len(right)).tolist()
    for number in np.flatnonzero(right).tolist():
        label, success = int(labels[number]), bool(found[number])
        pred = (label + 3) % CLASSES if success else label
        steps = 1 + number % STEPS if success else STEPS
        yield AttackRecord(
            *key, number, int(success), pred, steps, 0, -1, 0.0313725, l2[number], l1[number], 3000, steps + 1, steps
        )


def picture_rows(key: tuple[str, str, str, str], right: np.ndarray) -> Iterator[PictureRecord]:
    for number in np.flatnonzero(right)[:20].tolist():
        x = np.random.default_rng(number).random((3, 32, 32), dtype=np.float32)  # the image, the same for every model
        yield PictureRecord(*key, number, "3 32 32", x.tobytes(), np.clip(x + 0.01, 0, 1).astype(np.float32).tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("images", 10_000), ("attacks", 10), ("models", 5), ("radii", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        write_evidence(Path(name), given.models, given.attacks, given.images, given.radii)
        size = (Path(name) / "run.sqlite").stat().st_size / 2**20
        print(f"evidence of {vars(given)} written in {time.perf_counter() - start:.1f} s, {size:.0f} MiB")
        subprocess.run([sys.executable, "-c", _RENDER, name], check=True)
        for file in ("report.html", "results.csv", "samples.csv"):
            print(f"{file}: {(Path(name) / file).stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
