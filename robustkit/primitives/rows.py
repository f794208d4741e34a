"""Frozen dataclasses of tensors whose first axis is the row: the states of attacks.

A struct never changes after it was made. Only `overwritten` writes in place; the engine uses it on the state that it
alone holds.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import torch
from torch import Tensor
from typing_extensions import Self

from robustkit.errors import UserError

R = TypeVar("R", bound="Rows")
_NAMES: dict[type[Any], tuple[str, ...]] = {}  # of the fields of structs
_MOST_AT_ONCE = 64  # numbers that torch's kernels compute at once: two vectors of 16-bit floats


class Rows:
    """Base of frozen dataclasses whose fields are tensors `[B, ...]` or `Rows` of length B."""

    def __len__(self) -> int:
        return len(getattr(self, _names(type(self))[0]))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors by their names, also those of nested structs: "trial.x"."""
        for name in _names(type(self)):
            value = getattr(self, name)
            if isinstance(value, Rows):
                yield from ((f"{name}.{inner}", each) for inner, each in value.tensors())
            else:
                yield name, value

    def take(self, rows: Tensor) -> Self:
        """The given rows, in that order; `rows` is `[n]` int64 and may repeat."""
        return self._each(lambda values: values.index_select(0, rows))

    def overwritten(self, rows: Tensor, other: Self) -> Self:
        """The same struct with `rows` replaced by the rows of `other`, in the memory of this one.

        This one must not be used afterwards. Fields that share one tensor still get their own rows.
        """
        written: set[int] = set()

        def merge(mine: Tensor, theirs: Tensor) -> Tensor:
            place = mine.untyped_storage().data_ptr()
            if place in written or not mine.is_contiguous():
                return mine.index_copy(0, rows, theirs)
            written.add(place)
            return mine.index_copy_(0, rows, theirs)

        return self._with(other, merge)

    def where(self, mask: Tensor, other: Self) -> Self:
        """The rows of this struct where `mask` `[B]` is true, those of `other` elsewhere."""

        def chosen(mine: Tensor, theirs: Tensor) -> Tensor:
            return mine if mine is theirs else torch.where(along(mask, mine), mine, theirs)

        return self._with(other, chosen)

    @staticmethod
    def cat(parts: "Sequence[R]") -> "R":
        """All rows of all parts, in order."""
        if len(parts) == 1:
            return parts[0]
        values = {}
        for name in _names(type(parts[0])):
            column = [getattr(part, name) for part in parts]
            values[name] = Rows.cat(column) if isinstance(column[0], Rows) else torch.cat(column)
        return type(parts[0])(**values)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        values = {}
        for name in _names(type(self)):
            value = getattr(self, name)
            values[name] = value._each(change) if isinstance(value, Rows) else change(value)
        return type(self)(**values)

    def _with(self, other: Self, merge: Callable[[Tensor, Tensor], Tensor]) -> Self:
        values = {}
        for name in _names(type(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            values[name] = mine._with(theirs, merge) if isinstance(mine, Rows) else merge(mine, theirs)
        return type(self)(**values)


def _names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a struct; kept, because each step asks for them some twenty times."""
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in fields(kind))
    return names


def along(values: Tensor, like: Tensor) -> Tensor:
    """`[B]` values in the shape `[B, 1, ...]`, so that they broadcast over the rows of `like`.

    Raises:
        UserError: the values are no tensor.
    """
    if not isinstance(values, Tensor):
        raise UserError(f"along takes a tensor with one value for each row, not {type(values).__name__}.")
    return values.reshape(len(values), *[1] * (like.dim() - 1))


def numbers_on(device: torch.device, values: Sequence[int]) -> Tensor:
    """`[n]` int64 the values on a device; the host does not wait until a GPU has them."""
    numbers = torch.tensor(values, dtype=torch.int64, device="cpu")
    # A copy from memory that is not pinned waits until the GPU has computed everything before it.
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


def surely_none(rows: Tensor) -> bool:
    """Whether none of `rows` `[B]` is true; False on a GPU, where the host would have to wait for the answer."""
    return rows.device.type == "cpu" and not bool(rows.any())


def version(tensor: Tensor) -> int:
    """How often a tensor was written into; 0 for a tensor of inference mode, which does not count it."""
    return 0 if tensor.is_inference() else tensor._version


def whole_vectors(function: Callable[..., object], *columns: Tensor) -> object:
    """What `function` returns for columns `[B, ...]`, called on so many rows that none is left over from a vector.

    A processor computes several numbers at once, and those that are left over one by one, which rounds a sigmoid, a
    softplus or a power otherwise: a row's value would depend on how many rows there are. Rows that are added come last,
    as copies of the first.
    """
    count = len(columns[0])
    missing = -count % _MOST_AT_ONCE
    if not missing or not count:
        return function(*columns)
    value = function(*(torch.cat([each, each[:1].expand(missing, *each.shape[1:])]) for each in columns))
    return value[:count] if isinstance(value, Tensor) and value.shape[:1] == (count + missing,) else value


def finite(values: Tensor) -> bool:
    """Whether no value is NaN or infinite."""
    # The sum alone decides in nearly all cases: one pass over the values, which matters for small networks.
    return math.isfinite(values.sum().item()) or bool(values.isfinite().all())


def rows_not_finite(values: Tensor) -> list[int]:
    """The rows of `[n, ...]` in which a value is NaN or infinite."""
    rows: list[int] = (~values.isfinite()).flatten(1).any(1).nonzero().flatten().tolist()
    return rows


def padded(rows: Tensor, length: int) -> Tensor:
    """Row numbers `[n]` followed by copies of the first one, `length` in all."""
    return torch.cat([rows, rows[:1].expand(length - len(rows))])
