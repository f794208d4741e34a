"""Images and labels from Python, whatever they are kept in: tensors, NumPy arrays, lists of numbers."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robustkit.errors import UserError

Array = Tensor | NDArray[Any]

_MOST = 2**63 - 1


def tensor_of(values: Any, what: str) -> Tensor:
    """The values as a tensor.

    Args:
        values: a tensor, an array, or nested lists of numbers.
        what: names them in errors, such as "The images".

    Raises:
        UserError: they are something else.
    """
    if isinstance(values, Tensor):
        return values
    if not isinstance(values, (np.ndarray, list, tuple)):
        raise UserError(f"{what} must be a tensor or an array of numbers, not {type(values).__name__}.")
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if _is_beyond_64_bits(values, array):
        raise UserError(f"{what} hold a whole number of more than 63 bits; give smaller ones, classes from 0.")
    if array.dtype.kind not in "biuf":
        raise UserError(f"{what} must be a tensor or an array of numbers, all of one shape.")
    # torch has no arrays in another byte order, and few operations for uint16 and larger.
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))


def _is_beyond_64_bits(values: Any, array: NDArray[Any]) -> bool:
    """Whether there is a whole number that int64 lacks; numpy makes other types of lists with one."""
    if array.dtype.kind == "u":
        return bool((array > _MOST).any())
    if isinstance(values, np.ndarray):
        return False
    return any(type(each) is int and not -_MOST <= each <= _MOST for each in values)
