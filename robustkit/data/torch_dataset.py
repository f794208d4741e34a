"""Data sets of torch and torchvision, and data loaders, as data sets of ours."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
)
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data.dataset import TensorDataset

from robustkit import limits
from robustkit.errors import UserError

from .arrays import THREATS, from_tensors
from .checks import checked_class_names, checked_images, checked_label, empty, require_classes
from .dataset import Dataset, NumberedImages, UsualThreat, pixel_fingerprint
from .tensors import tensor_of


@dataclass(frozen=True, eq=False, repr=False)
class TorchData(NumberedImages):
    """A map-style data set of torch whose items are an image and a label; images are read when they are needed."""

    name: str
    split: str
    class_names: tuple[str, ...]
    items: "TorchDataset[Any]"
    labels: Tensor  # [N] int64
    threats: tuple[UsualThreat, ...] = THREATS
    _seen: dict[int, int] = field(default_factory=dict, repr=False)  # checksums of the images read so far

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """These images and their labels.

        Raises:
            UserError: an item is no image with its label, or another one than when it was read before.
        """
        images = [self._image(int(number)) for number in ids]
        for number, image in zip(ids, images, strict=True):
            if image.shape != images[0].shape:
                raise UserError(
                    f"The images of {self.name} differ in size ({list(images[0].shape)}, and image {number} "
                    f"{list(image.shape)}); resize them first."
                )
        return torch.stack(images), self.labels[torch.tensor(ids, dtype=torch.int64, device="cpu")]

    def fingerprint(self, ids: Sequence[int]) -> str:
        """The SHA-256 of numbers, labels and pixels."""
        return pixel_fingerprint(self, ids)

    def _image(self, number: int) -> Tensor:
        image, label = _item(self.items, number, self.name)
        pixels = tensor_of(image, f"Image {number} of {self.name}").detach()
        try:
            pixels = checked_images(pixels[None], torch.zeros(1, dtype=torch.int64, device="cpu"), self.name).x[0]
        except UserError as error:  # it names the first image of those that it was given
            raise UserError(str(error).replace("image 0 ", f"image {number} ")) from None
        checksum = zlib.crc32(pixels.contiguous().numpy().tobytes())
        if self._seen.setdefault(number, checksum) != checksum:
            raise UserError(
                f"Image {number} of {self.name} is another one each time it is read; leave out random transforms."
            )
        if label != int(self.labels[number]):
            raise UserError(
                f"Image {number} of {self.name} comes with the label {label}, but its targets say "
                f"{int(self.labels[number])}."
            )
        return pixels


def from_torch(data: Any) -> Dataset:
    """A `torch.utils.data` data set, or that of a `DataLoader`, as a data set of ours, in the order of its numbers.

    Raises:
        UserError: its items are no numbered images with labels; the message says how to pass them.
    """
    if isinstance(data, DataLoader):
        data = _of_loader(data)
    name = type(data).__name__
    if isinstance(data, IterableDataset):
        raise UserError(f"{name} has no numbered images, because it is iterable; collect them into tensors: (x, y).")
    if isinstance(data, TensorDataset):
        if len(data.tensors) != 2:
            raise UserError(f"A TensorDataset must have images and labels, not {len(data.tensors)} tensors.")
        return from_tensors(*data.tensors, name=name.lower())
    count = _length(data)
    if not count:
        raise empty(name)
    if count > limits.PICTURES:
        raise UserError(
            f"{name} has {count:,} images, more than {limits.PICTURES:,}; give a part: Subset(data, range(1000))."
        )
    labels = require_classes(_labels(data, torch.arange(count, device="cpu")), name)
    return TorchData(_name(data), _split(data), _class_names(data, labels), data, labels)


def _of_loader(loader: "DataLoader[Any]") -> Any:
    """The data set of a loader that only puts its items into batches."""
    if isinstance(loader.dataset, IterableDataset):
        return loader.dataset  # which is refused with its own reason
    sampler, batches = loader.sampler, loader.batch_sampler
    whole = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == _length(loader.dataset)
    )
    if not whole or getattr(batches, "sampler", None) is not sampler or loader.collate_fn is not default_collate:
        raise UserError("A DataLoader with a sampler or a collate_fn of its own cannot be used; pass a data set.")
    return loader.dataset


def _length(data: Any) -> int:
    name = type(data).__name__
    try:
        return len(data)
    except (TypeError, NotImplementedError):
        raise UserError(f"{name} has no length; a data set needs __len__ and __getitem__.") from None
    except (ValueError, OverflowError) as error:  # below 0, or above 63 bits
        raise UserError(f"The length of {name} cannot be read ({type(error).__name__}: {error}).") from error


def _item(data: Any, number: int, name: str) -> tuple[Any, Any]:
    try:
        item = data[number]
    except UserError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise UserError(f"Image {number} of {name} cannot be read ({reason}).") from error
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        found = f"{len(item)} values" if isinstance(item, (tuple, list)) else type(item).__name__
        raise UserError(f"An item of {name} must be a pair, an image and its label, not {found}.")
    image, label = item
    if not isinstance(image, (Tensor, np.ndarray)):
        raise UserError(f"The images of {name} are {type(image).__name__}, not tensors; add transform=ToTensor().")
    try:
        return image, checked_label(_whole(label), number, name)
    except UserError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            f"The label of image {number} of {name} must be a whole number, not {limits.shown(label)}."
        ) from None


def _whole(label: Any) -> int:
    number = int(label)
    if number != label:
        raise ValueError
    return number


def _labels(data: Any, numbers: Tensor) -> Tensor:
    """Labels of these items: from `targets` or `labels` as torchvision's data sets have them, else from the items."""
    if isinstance(data, Subset):
        return _labels(data.dataset, torch.as_tensor(data.indices, dtype=torch.int64, device="cpu")[numbers])
    count = _length(data)
    if isinstance(data, ConcatDataset):
        return _labels_of_parts(data, torch.where(numbers < 0, numbers + count, numbers))
    for key in ("targets", "labels"):
        values = getattr(data, key, None)
        if isinstance(values, (list, np.ndarray, Tensor)) and len(values) == count:
            labels = tensor_of(values, f"{key} of {type(data).__name__}")
            if labels.ndim == 1 and not labels.is_floating_point() and getattr(data, "target_transform", None) is None:
                return labels.long().cpu()[numbers]
    name = type(data).__name__
    return torch.tensor([_item(data, number, name)[1] for number in numbers.tolist()], dtype=torch.int64, device="cpu")


def _labels_of_parts(data: "ConcatDataset[Any]", numbers: Tensor) -> Tensor:
    ends = torch.tensor(data.cumulative_sizes, device="cpu")
    part_of, labels = torch.searchsorted(ends, numbers, right=True), torch.empty_like(numbers)
    for number, part in enumerate(data.datasets):
        rows = part_of == number
        labels[rows] = _labels(part, numbers[rows] - (ends[number - 1] if number else 0))
    return labels


def _base(data: Any) -> Any:
    while isinstance(data, Subset):
        data = data.dataset
    return data


def _name(data: Any) -> str:
    return type(_base(data)).__name__.lower()


def _split(data: Any) -> str:
    """The split as torchvision's data sets name it; empty if that is unknown."""
    base = _base(data)
    train, split = getattr(base, "train", None), getattr(base, "split", None)
    if isinstance(train, bool):
        return "train" if train else "test"
    return split if isinstance(split, str) else ""


def _class_names(data: Any, labels: Tensor) -> tuple[str, ...]:
    names = getattr(_base(data), "classes", None)
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        names = ()
    return checked_class_names(tuple(names) if len(names) > int(labels.max()) else None, labels, _name(data))
