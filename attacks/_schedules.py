"""Schedules: a number for each step of a trial, looked up by the row's own counter.

A formula on the counters of a batch would not do: torch rounds the powers and cosines of a tensor's last values
differently from the others, so that a row's step size would depend on its place in the batch.
"""

import math
from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor


def at(turn: Tensor, table: Tensor, like: Tensor) -> Tensor:
    """`[B]` the numbers of a table at the rows' counters, in the type of `like`; the last one beyond its end."""
    return table.to(like).index_select(0, turn.clamp(max=len(table) - 1))


@cache
def cosine(first: float, last: float, steps: int) -> Tensor:
    """`[steps]` half a wave from `first`, which would reach `last` after as many steps."""
    return table(last + (first - last) * (1 + math.cos(math.pi * turn / steps)) / 2 for turn in range(steps))


@cache
def square_root(steps: int) -> Tensor:
    """`[steps]` from 1 to nearly 0 as the root of the share of steps that are left."""
    return table((1 - turn / steps) ** 0.5 for turn in range(steps))


def table(values: Iterable[float]) -> Tensor:
    """A schedule of given numbers."""
    return torch.tensor(list(values), dtype=torch.float64, device="cpu")
