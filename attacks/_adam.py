"""Adam's direction, row by row: Kingma & Ba 2015, arXiv:1412.6980, with the constants of the paper."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives.rows import Rows, along

from ._schedules import at, table

_FIRST, _SECOND = 0.9, 0.999  # decays of the moving averages
_FLOOR = 1e-8


@dataclass(frozen=True)
class Moments(Rows):
    """Moving averages of the gradients."""

    mean: Tensor  # [B, *S]
    square: Tensor  # [B, *S] of their squares


class Adam(NamedTuple):
    """The direction of a descent, and the averages for the next one."""

    direction: Tensor  # [B, *S] near 1 in size where gradients agree
    moments: Moments


def at_rest(x: Tensor) -> Moments:
    """The averages before the first gradient."""
    return Moments(torch.zeros_like(x), torch.zeros_like(x))


def adam(moments: Moments, grad: Tensor, turn: Tensor, steps: int) -> Adam:
    """One update.

    Args:
        moments: of the gradients before.
        grad: `[B, *S]`.
        turn: `[B]` number of gradients before.
        steps: the most that there can be.
    """
    mean = _FIRST * moments.mean + (1 - _FIRST) * grad
    square = _SECOND * moments.square + (1 - _SECOND) * (grad * grad)
    first, second = (along(at(turn, _unbiased(decay, steps), grad), grad) for decay in (_FIRST, _SECOND))
    return Adam(mean / first / ((square / second).sqrt() + _FLOOR), Moments(mean, square))


@cache
def _unbiased(decay: float, steps: int) -> Tensor:
    """`[steps]` what averages that begin at zero are divided by."""
    return table(1 - decay ** (turn + 1) for turn in range(steps))
