"""Images that a data set has several times: intervals count each as one more independent image."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence

from robustkit.host.files import sha256_of

from .dataset import Dataset, TensorData, chunks
from .eight_bits import EightBitImages
from .part import DatasetPart
from .pictures import LazyData

ABOUT_COPIES = "with the same label. Intervals count them as independent images and are too narrow; remove the copies."
_LEAST = 0.01  # share of copies: that many change the length of an interval by half a percent


def warning_of_copies(data: Dataset, ids: Sequence[int]) -> list[str]:
    """A warning, which ends in `ABOUT_COPIES`, where a hundredth of these images or more are copies; else nothing."""
    copies = count_copies(data, ids)
    return [f"{copies} of {len(ids)} images are copies of others {ABOUT_COPIES}"] if copies >= _LEAST * len(ids) else []


def count_copies(data: Dataset, ids: Sequence[int]) -> int:
    """How many of these images are copies of an earlier one with the same label; nothing is decoded for it.

    Compared are images in memory and files. Of other data sets it is not known, and counts as none.
    """
    if isinstance(data, DatasetPart):
        return count_copies(data.whole, [data.ids[number] for number in ids])
    if isinstance(data, EightBitImages):
        return count_copies(data.whole, ids)
    if isinstance(data, TensorData):
        return _repeated(_pixels(data, ids))
    if isinstance(data, LazyData) and data.files is not None:
        return _repeated(_contents(data, ids))
    return 0


def _repeated(keys: Sequence[Hashable]) -> int:
    return len(keys) - len({*keys})


def _pixels(data: TensorData, ids: Sequence[int]) -> list[Hashable]:
    keys: list[Hashable] = []
    for chunk in chunks(ids):
        x, y = data.batch(chunk)
        hashes = (hashlib.sha256(image.numpy().tobytes()).digest() for image in x)
        keys += zip(y.tolist(), hashes, strict=True)
    return keys


def _contents(data: LazyData, ids: Sequence[int]) -> list[Hashable]:
    """Labels and hashes of those files that have the same label and size; the others need not be read again."""
    assert data.files is not None
    files = [data.files[number] for number in ids]
    labels = data.labels[list(ids)].tolist()
    sizes = [(label, file.stat().st_size) for label, file in zip(labels, files, strict=True)]
    times = Counter(sizes)
    return [(size, sha256_of(file)) for size, file in zip(sizes, files, strict=True) if times[size] > 1]
