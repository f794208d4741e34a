"""Generated corruptions against PyPI's imagecorruptions: speed, and the pictures themselves.

    python bench/corruptions.py --oracle ORACLE/bin/python [--images cifar10.npz]

ORACLE is an environment with numpy below 2, imagecorruptions 1.1.2 (without its dependencies), "scikit-image<0.23",
opencv-python-headless 4.9, numba and setuptools below 81. Seconds are of the processor, one thread each. Without
--images only pictures of 224 pixels, from scikit-learn's two photographs, are compared.
"""

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from robustkit.common_corruptions.generate import corrupted
from robustkit.common_corruptions.parameters import NAMES, SEVERITIES, STRENGTHS


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--oracle", required=True)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--names", nargs="+", default=NAMES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.images is not None:
        x = np.load(options.images)["x"][: options.count]
        _compare(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), options.names, options.oracle)
    _compare(_photographs(), options.names, options.oracle)


def _photographs() -> np.ndarray:
    from sklearn.datasets import load_sample_images

    photographs = load_sample_images().images
    return np.stack([each[row : row + 224, column : column + 224] for each in photographs
                     for row in (0, 200) for column in (0, 200, 400)])  # fmt: skip


def _compare(x: np.ndarray, names: list[str], oracle: str) -> None:
    theirs = _theirs(x, names, oracle)
    print(f"\n{len(x)} pictures of {x.shape[1]} x {x.shape[2]}; theirs -> ours, means over the five severities")
    print(
        f"{'corruption':18}{'images/s':>16}{'mean':>16}{'variance':>16}{'PSNR, dB':>16}  {'largest gap of a severity'}"
    )
    for name in names:
        rows, seconds = [], np.zeros(2)
        for severity in SEVERITIES:
            start = time.process_time()
            ours = corrupted(x, name, severity, 0, range(len(x)))
            seconds += float(theirs[f"seconds {name} {severity}"]), time.process_time() - start
            rows.append([_figures(made, x) for made in (theirs[f"{name} {severity}"], ours)])
        table = np.array(rows)  # [severity, theirs and ours, figure]
        speed = 5 * len(x) / seconds
        gap = np.abs(table[:, 1] - table[:, 0]).max(0)
        pairs = "".join(f"{a:7.1f} -> {b:5.1f}" for a, b in table.mean(0).T)
        print(f"{name:18}{speed[0]:7.0f} -> {speed[1]:5.0f}{pairs}   mean {gap[0]:.1f}, PSNR {gap[2]:.2f}")


def _theirs(x: np.ndarray, names: list[str], oracle: str) -> dict[str, np.ndarray]:
    small = x.shape[1] < 85
    strengths = {name: getattr(STRENGTHS[name], "small" if small else "large") for name in names}
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(given, x=x, strengths=json.dumps(strengths))
        subprocess.run([oracle, Path(__file__).with_name("corruptions_oracle.py"), given, made], check=True,
                       env={"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"})  # fmt: skip
        return dict(np.load(made))


def _figures(made: np.ndarray, x: np.ndarray) -> tuple[float, float, float]:
    errors = ((made.astype(float) - x) ** 2).mean((1, 2, 3))
    psnr = 10 * np.log10(255**2 / np.maximum(errors, 1e-3))
    return float(made.mean()), float(made.astype(float).var((1, 2)).mean()), float(psnr.mean())


if __name__ == "__main__":
    main()
