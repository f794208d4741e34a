"""Schedules: tables with a number for each step of a trial, which each row reads at its own counter.

Tables instead of formulas, because torch may round powers and cosines differently at the end of a tensor: a row's step
size would depend on its place in the batch.
"""

import math
from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor


def at(turn: Tensor, table: Tensor, like: Tensor) -> Tensor:
    """`[B]` the number of each row, in the type of `like`.

    Args:
        turn: `[B]` int64 counters; those beyond the end of the table read its last number.
        table: the schedule.
        like: tensor whose type and device the result has.
    """
    return beside(table, like).index_select(0, turn.clamp(max=len(table) - 1))


def beside(table: Tensor, like: Tensor) -> Tensor:
    """A table that is kept, in the type and on the device of `like`; copied once, for a copy waits for a GPU."""
    return _copied(table, like.dtype, like.device)


@cache
def _copied(table: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    return table.to(device, dtype)


@cache
def cosine(first: float, last: float, steps: int) -> Tensor:
    """`[steps]` from `first` towards `last` along half a cosine; `last` would be the number of step `steps`."""
    return table(last + (first - last) * (1 + math.cos(math.pi * turn / steps)) / 2 for turn in range(steps))


@cache
def square_root(steps: int) -> Tensor:
    """`[steps]` from 1 to nearly 0: the square root of the share of steps that are left."""
    return table((1 - turn / steps) ** 0.5 for turn in range(steps))


@cache
def exponential(last: float, steps: int) -> Tensor:
    """`[steps]` from 1 towards `last` by one factor per step; `last` would be the number of step `steps`."""
    return table(last ** (turn / steps) for turn in range(steps))


@cache
def linear(last: float, steps: int) -> Tensor:
    """`[steps]` from 1 to `last` on a straight line."""
    return table(1 - (1 - last) * turn / max(steps - 1, 1) for turn in range(steps))


def one_by_one(function: Callable[[float], float], values: Tensor) -> Tensor:
    """`[B]` a function of each number, computed in Python so that its rounding does not depend on the batch."""
    return torch.tensor([function(value) for value in values.tolist()], dtype=values.dtype, device=values.device)


def table(values: Iterable[float]) -> Tensor:
    """A schedule of given numbers."""
    return torch.tensor(list(values), dtype=torch.float64, device="cpu")
