"""A data set of images as the rest of robustkit sees it: numbered, labelled, read only where asked."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

CHUNK = 256  # images held at once while hashing: bounds the memory, does not change the hash


class UsualThreat(NamedTuple):
    """A norm ball that is usual for a data set; `eps` is a text such as "8/255"."""

    norm: str
    eps: str


class DatasetOrigin(NamedTuple):
    """What `load_dataset` was asked for, so that another split can be asked of the same place."""

    name: str
    data_dir: Path | None = None
    image_size: int | None = None
    splits: tuple[str, ...] = ()


class Dataset(Protocol):
    """Images of one shape with their labels; the usual threat stands first in `threats`."""

    @property
    def name(self) -> str:
        """Such as "digits"."""

    @property
    def split(self) -> str:
        """Such as "test"."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """One for each label, in order."""

    @property
    def threats(self) -> tuple[UsualThreat, ...]:
        """The balls it is usually attacked in."""

    @property
    def labels(self) -> Tensor:
        """`[N]` int64, all of them."""

    def __len__(self) -> int: ...

    def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """`[B, C, H, W]` float32 in [0, 1] and `[B]` int64 of these images; reads no others."""

    def fingerprint(self, ids: Sequence[int]) -> str:
        """The SHA-256, in hex, of these numbers, their labels and their pixels or files."""


@dataclass(frozen=True, eq=False)
class TensorData:
    """A data set that is already in memory."""

    name: str
    split: str
    class_names: tuple[str, ...]
    threats: tuple[UsualThreat, ...]
    images: Tensor  # [N, C, H, W] float32 in [0, 1]
    labels: Tensor  # [N] int64
    origin: DatasetOrigin | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """These images and their labels, as copies."""
        rows = torch.tensor(ids, dtype=torch.int64)
        return self.images[rows], self.labels[rows]

    def fingerprint(self, ids: Sequence[int]) -> str:
        """The SHA-256 of numbers, labels and pixels."""
        return pixel_fingerprint(self, ids)


def pixel_fingerprint(data: Dataset, ids: Sequence[int]) -> str:
    """The SHA-256, in hex, of the numbers, labels, shape and pixels, read a few at a time."""
    digest = hash_of_labels(data, ids)
    for some in chunks(ids):
        x, _ = data.batch(some)
        digest.update(repr(tuple(x.shape[1:])).encode())
        digest.update(x.contiguous().numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def hash_of_labels(data: Dataset, ids: Sequence[int]) -> "hashlib._Hash":
    """A SHA-256 that has seen the numbers and their labels, for pixels or files to follow."""
    rows = torch.tensor(ids, dtype=torch.int64)
    digest = hashlib.sha256(f"{len(rows)} images\n".encode())
    digest.update(rows.numpy().astype("<i8").tobytes())
    digest.update(data.labels[rows].numpy().astype("<i8").tobytes())
    return digest


def chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """The numbers, at most `CHUNK` at a time."""
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]
