"""Projections on balls whose radii differ from row to row."""

import torch
from torch import Tensor

from robustkit.primitives.ball import NormName
from robustkit.primitives.norm_balls import project_l1
from robustkit.primitives.rows import along


def projected(norm: NormName, x: Tensor, point: Tensor, radius: Tensor) -> Tensor:
    """`[B, *S]` a valid point of the balls of `radius` `[B]` around `x`, near `point`, which may be any one.

    The nearest one for Linf, L1 and L0; for L2 the nearest one of the ball, clipped.
    """
    if norm == "L0":
        return _sparse(x, point.clamp(0, 1), radius)
    change, width = point - x, along(radius.to(x), x)
    if norm == "Linf":
        change = change.clamp(-width, width)
    elif norm == "L2":
        # A point inside of the ball stays where it is: scaling it up to the surface is adv-lib's mistake.
        length = change.flatten(1).norm(dim=1).clamp(min=1e-12)
        change = change * (width / along(length, x)).clamp(max=1)
    else:
        change = project_l1(change, x, radius)
    return (x + change).clamp(0, 1)


def _sparse(x: Tensor, point: Tensor, count: Tensor) -> Tensor:
    """The `count` values that changed most; of equal ones the first."""
    size = (point - x).abs().flatten(1)
    count = count.long().clamp(0, size.shape[1]).unsqueeze(1)
    most = int(count.max())  # of all rows; it changes none of them
    if most == 0:
        return x
    least = size.topk(most, dim=1).values.gather(1, (count - 1).clamp(min=0))
    equal = size == least
    left = count - (size > least).sum(1, keepdim=True)
    kept = ((size > least) | (equal & (equal.cumsum(1) <= left))) & (count > 0)
    return torch.where(kept.reshape(x.shape), point, x)
