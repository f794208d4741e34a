"""The direction of Adam, computed for each row alone.

Kingma & Ba 2015, arXiv:1412.6980, with the constants of the paper.
"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from robustkit.primitives.rows import Rows, along

from ._schedules import at, table

_FIRST, _SECOND = 0.9, 0.999  # decays of the moving averages
_FLOOR = 1e-8  # epsilon in the paper


@dataclass(frozen=True)
class Moments(Rows):
    """Moving averages of the gradients."""

    mean: Tensor  # [B, *S]
    square: Tensor  # [B, *S] moving average of the squared gradients


class Adam(NamedTuple):
    """The result of one update."""

    direction: Tensor  # [B, *S] each value is near -1 or 1 where successive gradients agree
    moments: Moments  # for the next update


def at_rest(x: Tensor) -> Moments:
    """The moving averages before the first gradient."""
    return Moments(torch.zeros_like(x), torch.zeros_like(x))


def adam(moments: Moments, grad: Tensor, turn: Tensor, steps: int) -> Adam:
    """Adam's direction after one more gradient.

    Args:
        moments: moving averages of the earlier gradients.
        grad: `[B, *S]` the new gradient.
        turn: `[B]` number of earlier gradients.
        steps: largest number of gradients in a trial.
    """
    mean = _FIRST * moments.mean + (1 - _FIRST) * grad
    square = _SECOND * moments.square + (1 - _SECOND) * (grad * grad)
    first, second = (along(at(turn, _unbiased(decay, steps), grad), grad) for decay in (_FIRST, _SECOND))
    return Adam(mean / first / ((square / second).sqrt() + _FLOOR), Moments(mean, square))


def scale_of(moments: Moments, turn: Tensor, steps: int) -> Tensor:
    """`[B, *S]` the divisor of the averaged gradients in `adam`.

    Args:
        moments: as returned by `adam`.
        turn: as given to it.
        steps: as given to it.
    """
    return (moments.square / along(at(turn, _unbiased(_SECOND, steps), moments.square), moments.square)).sqrt() + _FLOOR


@cache
def _unbiased(decay: float, steps: int) -> Tensor:
    """`[steps]` divisors that correct the bias of moving averages that start at zero."""
    return table(1 - decay ** (turn + 1) for turn in range(steps))
