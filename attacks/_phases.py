"""Queries of rows that are in different phases of an attack."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from robustkit.primitives.rows import along


def by_phase(phase: Tensor, makers: Sequence[Callable[[], Tensor]]) -> Tensor:
    """Each row's query from the maker of its phase `[B]`."""
    query: Tensor | None = None
    for number, make in enumerate(makers):
        here = phase == number
        if bool(here.any()):  # saves time and changes no row's value
            made = make()
            query = made if query is None else torch.where(along(here, made), made, query)
    assert query is not None
    return query
