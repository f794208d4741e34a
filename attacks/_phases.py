"""Queries of a batch whose rows are in different phases of an attack."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from robustkit.primitives.rows import along


def by_phase(phase: Tensor, makers: Sequence[Callable[[], Tensor]]) -> Tensor:
    """`[B, *S]` queries: `makers[n]` makes those of the rows in phase n.

    Args:
        phase: `[B]` int64.
        makers: functions that return `[B, *S]`, one for each phase.
    """
    query: Tensor | None = None
    for number, make in enumerate(makers):
        here = phase == number
        if bool(here.any()):  # saves time and changes no row's value
            own_query = make()
            query = own_query if query is None else torch.where(along(here, own_query), own_query, query)
    assert query is not None
    return query
