"""The tensors inside the arguments or outputs of layers: tuples, named tuples, dictionaries, dataclasses, nested."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from torch import Tensor


def mapped(
    value: Any, change: Callable[[Any], Any], leaf: type = Tensor, rest: Callable[[Any], Any] = lambda value: value
) -> Any:
    """A new value of the same structure, with `change` applied to each tensor in it, and `rest` to all else."""
    if isinstance(value, leaf):
        return change(value)
    if isinstance(value, (tuple, list)):
        parts = [mapped(part, change, leaf, rest) for part in value]
        # Not by the constructor of a named tuple, which may check its fields, as that of PackedSequence does.
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    if isinstance(value, MutableMapping):
        # Assignment item by item, because subclasses such as model outputs then update their attributes too.
        mapping = copy.copy(value)
        for key, part in value.items():
            mapping[key] = mapped(part, change, leaf, rest)
        return mapping
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(changed, field.name, mapped(getattr(value, field.name), change, leaf, rest))
        return changed
    return rest(value)


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors inside, depth first."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors(part)
    elif isinstance(value, MutableMapping):
        for part in value.values():
            yield from tensors(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors(getattr(value, field.name))


def same_structure(one: Any, other: Any) -> bool:
    """Whether two values have the same type, and the same number of tensors with the same shapes."""
    if isinstance(one, Tensor) != isinstance(other, Tensor):
        return False
    if not isinstance(one, Tensor) and type(one) is not type(other):
        return False
    return [part.shape for part in tensors(one)] == [part.shape for part in tensors(other)]
