"""scikit-learn's digits: 1797 real 8x8 images that need no download.

Split into 1099 / 194 / 504 for train / val / test, stratified, seed 0. Nothing is chosen on the test split.
"""

from functools import cache

import torch
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
    from sklearn.datasets import load_digits as bundled
    from sklearn.model_selection import train_test_split

    raw = bundled()
    y = raw.target
    rest, test = train_test_split(range(len(y)), test_size=504, stratify=y, random_state=0)
    train, val = train_test_split(rest, test_size=194, stratify=y[rest], random_state=0)
    images = torch.from_numpy(raw.images).float().div_(16).unsqueeze(1)
    rows = {"train": train, "val": val, "test": test}
    return images, torch.from_numpy(y).long(), {split: torch.tensor(ids) for split, ids in rows.items()}
