"""Data sets on disk: an image is decoded each time it is requested, and not kept in memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.limits import shortened

from .dataset import DatasetOrigin, NumberedImages, UsualThreat, hash_of_labels, pixel_fingerprint


class MapStyleDataset(Protocol):
    """A map-style data set, as torchvision has them: an image as a tensor, and its label."""

    def __getitem__(self, number: int, /) -> tuple[Tensor, int]: ...


@dataclass(frozen=True, eq=False, repr=False)
class LazyData(NumberedImages):
    """A data set whose images are decoded by `items` when `batch` is called."""

    name: str
    split: str
    class_names: tuple[str, ...]
    threats: tuple[UsualThreat, ...]
    items: MapStyleDataset
    labels: Tensor  # [N] int64
    shape: tuple[int, ...]  # [C, H, W] of every image
    files: tuple[Path, ...] | None = None  # one for each image; None if images are not separate files
    origin: DatasetOrigin | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """These images and their labels.

        Raises:
            UserError: an image cannot be decoded, or is of another size than the first.
        """
        x = torch.empty(len(ids), *self.shape, device="cpu")
        for row, number in enumerate(ids):
            x[row] = self._image(number)
        return x, self.labels[torch.tensor(ids, dtype=torch.int64, device="cpu")]

    def fingerprint(self, ids: Sequence[int]) -> str:
        """The SHA-256 of numbers and labels with the files' bytes, or with the pixels if there are no files."""
        if self.files is None:
            return pixel_fingerprint(self, ids)
        digest = hash_of_labels(self, ids)
        # The same files resized to another shape are other images.
        digest.update(repr(self.shape).encode())
        for number in ids:
            raw = read_file(self.files[number])
            digest.update(f"{len(raw)}\n".encode())
            digest.update(raw)
        return digest.hexdigest()

    def _image(self, number: int) -> Tensor:
        image = decode(self.items, number, self._place(number))
        if tuple(image.shape) != self.shape:
            first, other = (f"{shape[-1]}x{shape[-2]}" for shape in (self.shape, tuple(image.shape)))
            raise UserError(
                f"The images of {self.name} differ in size: the first is {first}, {self._place(number)} is {other}; "
                "resize them first, or pass --image-size (image_size)."
            )
        return image

    def _place(self, number: int) -> str:
        return f"image {number} of {self.name}" if self.files is None else str(self.files[number])


def read_file(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{shortened(path)} cannot be read ({error.strerror}); replace or remove it.") from None


def decode(items: MapStyleDataset, number: int, place: str) -> Tensor:
    """One image; `place` names it in errors.

    Raises:
        UserError: it cannot be decoded.
    """
    try:
        return items[number][0]
    except UserError:
        raise
    except Exception as error:  # a broken file makes Pillow raise almost anything
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UserError(f"{place} cannot be decoded ({shortened(reason)}); replace or remove it.") from error
