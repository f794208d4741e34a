"""The interface of a data set: numbered images with labels, of which only the requested ones are read."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from robustkit.host.notebook import Summarised

CHUNK = 256  # images in memory at once while hashing; does not change the hash


class UsualThreat(NamedTuple):
    """A threat model that papers use for a data set; `eps` is a text such as "8/255"."""

    norm: str
    eps: str


class DatasetOrigin(NamedTuple):
    """The arguments of `load_dataset`, so that another split can be read from the same place."""

    name: str
    data_dir: Path | None = None
    image_size: int | None = None
    splits: tuple[str, ...] = ()
    gray: bool = False


@runtime_checkable
class Dataset(Protocol):
    """Images of one shape with their labels."""

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
        """The usual threat models; the first is the default."""

    @property
    def labels(self) -> Tensor:
        """`[N]` int64, the labels of all images."""

    def __len__(self) -> int: ...

    def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """These images, `[B, C, H, W]` float32 in [0, 1], and their labels, `[B]` int64; reads no other images."""

    def fingerprint(self, ids: Sequence[int]) -> str:
        """The SHA-256, in hex, of the numbers `ids`, their labels, and their pixels or files."""


class NumberedImages(Summarised):
    """A `Dataset` that shows itself by its name, split, size and classes, not by its pixels."""

    def summary(self) -> dict[str, str]:
        """Name, split, size and classes."""
        assert isinstance(self, Dataset)
        usual = ", ".join(f"{threat.norm} {threat.eps}" for threat in self.threats)
        return {"name": self.name, "split": self.split, "images": str(len(self)),
                "classes": str(len(self.class_names)), "usual threats": usual}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class TensorData(NumberedImages):
    """A data set in memory."""

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
        rows = torch.tensor(ids, dtype=torch.int64, device="cpu")
        return self.images[rows], self.labels[rows]

    def fingerprint(self, ids: Sequence[int]) -> str:
        """The SHA-256 of numbers, labels and pixels."""
        return pixel_fingerprint(self, ids)


def pixel_fingerprint(data: Dataset, ids: Sequence[int]) -> str:
    """The SHA-256, in hex, of numbers, labels, shape and pixels; reads `CHUNK` images at a time."""
    digest = hash_of_labels(data, ids)
    for chunk in chunks(ids):
        x, _ = data.batch(chunk)
        digest.update(repr(tuple(x.shape[1:])).encode())
        digest.update(x.contiguous().numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def hash_of_labels(data: Dataset, ids: Sequence[int]) -> "hashlib._Hash":
    """A SHA-256 of the numbers and their labels, to be updated with pixels or files."""
    rows = torch.tensor(ids, dtype=torch.int64, device="cpu")
    digest = hashlib.sha256(f"{len(rows)} images\n".encode())
    digest.update(rows.numpy().astype("<i8").tobytes())
    digest.update(data.labels[rows].numpy().astype("<i8").tobytes())
    return digest


def chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """The numbers in chunks of at most `CHUNK`."""
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK]
