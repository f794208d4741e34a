"""What the process that writes the evidence needs: memory, bytes on the disk and CPU time, for many images and attacks.

    python bench/coordinator_memory.py [--images 10000 100000 1000000] [--attacks 2 10] [--random]

Rows with made-up verdicts go through the agenda of a run with workers into a run folder, lane by lane; no model is
queried and no worker is started. Each line is a process of its own. What is counted is the most memory that the process
held (`ru_maxrss`) above what it held once the data set and the order of its images were there, and what it wrote to a
disk (`ru_oublock`: nothing where the folder for temporary files is in memory).
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from memory import peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--attacks", type=int, nargs="+", default=[2, 10])
    parser.add_argument("--random", action="store_true", help="no image comes with its neighbours, as in small runs")
    parser.add_argument("--alone", type=int, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone is not None:
        alone(*given.alone, random=given.random)
        return
    print(
        "   images  attacks      rows  CPU seconds  rows a second  written, MB  over start, MB  "
        "bytes per image and attack",
        flush=True,
    )
    for images in given.images:
        for attacks in given.attacks:
            order = ["--random"] if given.random else []
            command = [sys.executable, os.path.abspath(__file__), "--alone", str(images), str(attacks), *order]
            subprocess.run(command, check=True)


def alone(images: int, attacks: int, *, random: bool) -> None:
    import torch
    from made_up_rows import made_up_row
    from torch import Tensor, nn

    from robustkit import Classifier
    from robustkit.data import UsualThreat
    from robustkit.evaluation import image_marks
    from robustkit.evaluation.agenda import Agenda
    from robustkit.evaluation.request import EvaluationRequest
    from robustkit.evaluation.resolved import resolve
    from robustkit.evidence.store import Store
    from robustkit.host.progress import Silent

    class Nothing:
        """Images that nobody looks at."""

        name, split, class_names = "nothing", "test", tuple("0123456789")
        threats = (UsualThreat("Linf", "0.01"),)
        labels = torch.zeros(images, dtype=torch.uint8)

        def __len__(self) -> int:
            return images

        def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
            return torch.zeros(len(ids), 1, 8, 8), self.labels[list(ids)].long()

        def fingerprint(self, ids: Sequence[int]) -> str:
            return str(len(ids))

    request = EvaluationRequest(
        [Classifier(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval(), name="linear")], dataset=Nothing(),
        samples=None, attacks=[f"pgd:steps={k + 1}" for k in range(attacks)], watch=Silent(),
    )  # fmt: skip
    evaluation = resolve(request)
    if random:
        image_marks._LARGE = images + 1
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.set_manifest(warnings=[], seconds={})
        before, start, written = peak(), time.process_time(), blocks()
        agenda, rows = Agenda(evaluation, store), 0
        while (lane := agenda.take(8, None)) is not None:
            made = [made_up_row(evaluation, lane, image, broken=image % 3 == 0) for image in lane.images]
            agenda.write(lane.model, made)
            agenda.done(lane)
            rows += len(made)
        spent, over = time.process_time() - start, peak() - before
        store.close()
        disk = (blocks() - written) * 512 / 1e6
    share = 1e6 * over / images / attacks
    print(
        f"{images:9} {attacks:8} {rows:9} {spent:12.1f} {rows / spent:14.0f} {disk:12.0f} {over:15.1f} {share:27.1f}",
        flush=True,
    )


def blocks() -> int:
    """How many blocks of 512 bytes this process has written to a disk so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_oublock


if __name__ == "__main__":
    main()
