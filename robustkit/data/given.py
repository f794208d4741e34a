"""Data that a caller gives in Python, as a data set."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from robustkit.errors import UserError
from robustkit.host.arguments import kind_of

from .arrays import from_tensors
from .dataset import Dataset
from .saved_dataset import from_table, is_table
from .tensors import Array, tensor_of
from .torch_dataset import from_torch

GivenData = Dataset | tuple[Array, Array] | TorchDataset[Any] | DataLoader[Any]


@runtime_checkable
class MapStyle(Protocol):
    """What a `DataLoader` takes, also where it is not derived from torch's class."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any: ...


def _is_item(value: object) -> bool:
    """Whether a value is an image with its label."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return False
    image, label = value
    return isinstance(image, (Tensor, np.ndarray)) and image.ndim > 0 and np.ndim(label) == 0


def given_dataset(data: Any, taker: str = "Data in memory are") -> Dataset:
    """A `Dataset` as it is; as one: tensors or arrays `(x, y)`, a map-style data set, a `DataLoader`, a list of images
    with their labels, or a table.

    Args:
        data: what a caller gives.
        taker: how an error begins.

    Raises:
        UserError: it is nothing of that, or holds no images with labels.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (TorchDataset, DataLoader)):
        return from_torch(data)
    if isinstance(data, (tuple, list)) and data and all(map(_is_item, data)):
        return from_torch(data)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        x, y = data
        return from_tensors(tensor_of(x, "The images"), tensor_of(y, "The labels"))
    if is_table(data):
        return from_table(data)
    if isinstance(data, MapStyle) and not isinstance(
        data, (type, str, bytes, Mapping, list, tuple, Tensor, np.ndarray)
    ):
        return from_torch(data)
    what = "images without labels" if isinstance(data, Tensor) else kind_of(data)
    raise UserError(
        f"{taker} images [N, C, H, W] in [0, 1] with labels [N], as a pair (x, y), a torch data set or a DataLoader, "
        f"not {what}."
    )
