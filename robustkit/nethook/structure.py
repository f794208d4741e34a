"""The tensors inside whatever a layer takes or returns: tuples, named tuples, dictionaries, dataclasses, nested."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any

from torch import Tensor


def mapped(value: Any, change: Callable[[Any], Any], leaf: type = Tensor) -> Any:
    """A value of the same structure with `change` applied to each tensor in it; the value given is left alone."""
    if isinstance(value, leaf):
        return change(value)
    if isinstance(value, (tuple, list)):
        parts = [mapped(part, change, leaf) for part in value]
        # A named tuple wants its fields one by one; torch's own result types want one sequence.
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, MutableMapping):
        # A copy, then item by item: subclasses such as model outputs keep attributes and items in step.
        filled = copy.copy(value)
        for key, part in value.items():
            filled[key] = mapped(part, change, leaf)
        return filled
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fresh = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(fresh, field.name, mapped(getattr(value, field.name), change, leaf))
        return fresh
    return value


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


def alike(one: Any, other: Any) -> bool:
    """Whether two values have the same number of tensors, of the same shapes, in the same kind of wrapping."""
    if isinstance(one, Tensor) != isinstance(other, Tensor):
        return False
    if not isinstance(one, Tensor) and type(one) is not type(other):
        return False
    return [part.shape for part in tensors(one)] == [part.shape for part in tensors(other)]
