"""Peak memory of an evaluation against the number of images: it must stay flat.

Each size runs in a process of its own on a data set that makes its 3x64x64 images on demand (5000 of them would take
246 MB at once), with a small network, FGSM, and the evidence in a run folder; the number is `ru_maxrss`, the most
memory the process ever held, torch and all.

    python bench/memory.py [--sizes 200 1000 5000]
"""

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

SIDE = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 1000, 5000])
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone is not None:
        alone(options.alone)
        return
    print(f"{'images':>8} {'all images, MB':>15} {'peak, MB':>9} {'over imports, MB':>17}", flush=True)
    for count in options.sizes:
        command = [sys.executable, os.path.abspath(__file__), "--alone", str(count)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


def alone(count: int) -> None:
    import torch
    from torch import Tensor, nn

    from robustkit import evaluate
    from robustkit.data import UsualThreat

    torch.set_num_threads(1)

    class Stream:
        """Images that exist only while they are looked at."""

        name, split, class_names = "stream", "test", tuple("0123456789")
        threats = (UsualThreat("Linf", "1/255"),)
        labels = torch.arange(count) % 10

        def __len__(self) -> int:
            return count

        def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
            source = torch.Generator()
            images = [torch.rand(3, SIDE, SIDE, generator=source.manual_seed(number)) for number in ids]
            labels = self.labels[list(ids)]
            for image, label in zip(images, labels.tolist(), strict=True):
                image[0, 0, :10] = torch.eye(10)[label]  # what the network below looks at
            return torch.stack(images), labels

        def fingerprint(self, ids: Sequence[int]) -> str:
            return hashlib.sha256(repr(list(ids)).encode()).hexdigest()

    class Network(nn.Module):
        """Right on every image, and broken on some: a convolution's mean disturbs a look at ten pixels."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv, self.head = nn.Conv2d(3, 8, 3, stride=2), nn.Linear(8, 10)

        def forward(self, x: Tensor) -> Tensor:
            mean = self.conv(x).relu().mean((2, 3))
            return x[:, 0, 0, :10] + 0.1 * self.head(mean)  # type: ignore[no-any-return]

    before = peak()
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(
            Network().eval(), dataset=Stream(), attacks="fgsm", samples=None, device="cpu", out=Path(folder) / "run"
        )
        attacked = int(run.results.query("attack == 'fgsm'").attacked.iloc[0])
    assert attacked == count, f"only {attacked} of {count} images were attacked"
    whole = count * 3 * SIDE * SIDE * 4 / 1e6
    print(f"{count:8} {whole:15.0f} {peak():9.0f} {peak() - before:17.0f}")


def peak() -> float:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    main()
