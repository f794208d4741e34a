"""Refuse data sets that share images, however these were scaled to [0, 1]."""

import hashlib
from collections.abc import Mapping
from itertools import combinations

import torch

from robustkit.errors import UserError

from .dataset import Dataset

# 8-bit pixels divided by 255 or by 256 are multiples of 1 / this, so rounding to it removes the rounding error of the
# division: x / 255 and x * (1 / 255) differ in half of the values.
_LEVELS = 255 * 256


def check_disjoint(parts: Mapping[str, Dataset]) -> dict[str, frozenset[bytes]]:
    """Refuse data sets that share images.

    Args:
        parts: by what the error calls their images, such as "training".

    Returns:
        The hashes of the images of each part, by `image_hashes`.

    Raises:
        UserError: the sentence names two of them.
    """
    hashes = {name: frozenset(image_hashes(data)) for name, data in parts.items()}
    for first, second in combinations(parts, 2):
        shared = len(hashes[first] & hashes[second])
        if shared:
            raise UserError(
                f"{shared} {second} images are {first} images too, so the result would not hold for new images; "
                "remove them from one of the two."
            )
    return hashes


def image_hashes(data: Dataset) -> list[bytes]:
    """A hash of each image, 32 bytes."""
    hashes = []
    for start in range(0, len(data), 256):
        x, _ = data.batch(range(start, min(start + 256, len(data))))
        levels = (x * _LEVELS).round().to(torch.int32)
        hashes += [hashlib.sha256(image.contiguous().numpy().tobytes()).digest() for image in levels]
    return hashes
