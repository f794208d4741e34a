"""scikit-learn's digits: 1797 real 8x8 images that need no download.

Split into 1099 / 194 / 504 for train / val / test, stratified, as scikit-learn's `train_test_split` does with seed 0;
`digits_split.json` has the rows, so that no other version moves an image. Nothing is chosen on the test split.
"""

import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .dataset import DatasetOrigin, TensorData, UsualThreat

SPLITS = ("train", "val", "test")
# Up to 0.21 balls around images of different classes do not overlap (the smallest distance is 0.438): 0.1 and 0.2 are
# sensible radii.
THREATS = (UsualThreat("Linf", "0.1"),)


def load_digits(split: str) -> TensorData:
    """The digits of one of `SPLITS`, `[1, 8, 8]` each, gray levels 0..16 divided by 16."""
    images, labels, rows = _loaded()
    selected = rows[split]
    names = tuple(str(digit) for digit in range(10))
    return TensorData(
        "digits", split, names, THREATS, images[selected], labels[selected], DatasetOrigin("digits", splits=SPLITS)
    )


@cache
def _loaded() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    values = _values()
    images = torch.from_numpy(values[:, :-1]).float().div_(16).reshape(-1, 1, 8, 8)
    rows = json.loads((Path(__file__).parent / "digits_split.json").read_text(encoding="utf-8"))
    by_split = {split: torch.tensor(ids, device="cpu") for split, ids in rows.items()}
    return images, torch.from_numpy(values[:, -1]).long(), by_split


def _values() -> NDArray[np.float64]:
    """`[1797, 65]` gray levels 0..16 of each image and, last, its class."""
    package = find_spec("sklearn")
    # To import scikit-learn takes 0.7 s, with which the main command would begin.
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(file, delimiter=",")
    from sklearn.datasets import load_digits as bundled  # of a version that keeps its data elsewhere

    return np.column_stack(bundled(return_X_y=True))
