"""Data that a caller gives in Python, as a data set."""

from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from robustkit.errors import UserError

from .arrays import from_tensors
from .dataset import Dataset
from .tensors import tensor_of
from .torch_dataset import from_torch


def given_dataset(data: Any) -> Dataset:
    """A `Dataset` as it is; tensors or arrays `(x, y)`, a torch data set or a `DataLoader` as one.

    Raises:
        UserError: it is nothing of that, or holds no images with labels.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (TorchDataset, DataLoader)):
        return from_torch(data)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        x, y = data
        return from_tensors(tensor_of(x, "The images"), tensor_of(y, "The labels"))
    what = "images without labels" if isinstance(data, Tensor) else type(data).__name__
    raise UserError(
        f"Data in memory are images [N, C, H, W] in [0, 1] with labels [N], as a pair (x, y), a torch data set or a "
        f"DataLoader, not {what}."
    )
