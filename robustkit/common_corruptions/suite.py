"""Which corrupted pictures an evaluation asks about, wherever they come from."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit.data import Dataset

Pictures = NDArray[np.uint8]

GENERATED: Final = "generated"
_VERSION = 1  # of the generated pictures; increased whenever a pixel of them changes
_BITS = 6  # bytes of a picture's hash


class CorruptionLevel(NamedTuple):
    """One corruption at one severity."""

    corruption: str
    severity: int


class CorruptionSuite(Protocol):
    """Corrupted versions of the images of one data set."""

    @property
    def cells(self) -> tuple[CorruptionLevel, ...]:
        """All corruptions at all severities, in the order of work."""

    def described(self) -> dict[str, Any]:
        """Source, names, severities, and what else decides the pixels, for the manifest."""

    def pictures(self, cell: CorruptionLevel, ids: Sequence[int], clean: Tensor) -> Pictures:
        """`[B, H, W, C]` pictures.

        Args:
            cell: the corruption.
            ids: numbers of the images in the data set.
            clean: `[B, C, H, W]` these images in [0, 1].

        Raises:
            UserError: one cannot be read.
        """


@dataclass(frozen=True)
class GeneratedSuite:
    """Corruptions that are computed when they are asked for.

    Raises:
        UserError: there is no such corruption or severity.
    """

    names: tuple[str, ...]
    severities: tuple[int, ...]
    seed: int

    def __post_init__(self) -> None:
        from .generate import check_corruption  # with scipy's filters, which most runs do without

        for name, severity in self.cells:
            check_corruption(name, severity)

    @property
    def cells(self) -> tuple[CorruptionLevel, ...]:
        """In the order of the names."""
        return cells_of(self.names, self.severities)

    def described(self) -> dict[str, Any]:
        """With the version of the generator; the seed is that of the run."""
        return {
            "source": GENERATED, "version": _VERSION, "names": list(self.names), "severities": list(self.severities)
        }  # fmt: skip

    def pictures(self, cell: CorruptionLevel, ids: Sequence[int], clean: Tensor) -> Pictures:
        """Made from the clean images."""
        from .generate import corrupted, eight_bits

        return corrupted(eight_bits(clean), cell.corruption, cell.severity, self.seed, ids)


def check_pictures(data: Dataset) -> None:
    """Check that the images of a data set can be corrupted.

    Raises:
        UserError: they cannot.
    """
    from .generate import check_shape

    x, _ = data.batch([0])
    check_shape(tuple(x.shape[1:]))


def cells_of(names: Sequence[str], severities: Sequence[int]) -> tuple[CorruptionLevel, ...]:
    """Every corruption at every severity."""
    return tuple(CorruptionLevel(name, severity) for name in names for severity in severities)


def images_of(pictures: Pictures) -> Tensor:
    """`[B, C, H, W]` float32 in [0, 1] of pictures `[B, H, W, C]`."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous().float().div_(255)


def hash_of(picture: Pictures) -> int:
    """48 bits of a hash of a picture, by which two runs can tell whether they judged the same one."""
    digest = hashlib.blake2b(repr(picture.shape).encode(), digest_size=_BITS)
    digest.update(np.ascontiguousarray(picture).tobytes())
    return int.from_bytes(digest.digest(), "little")
