"""Projections onto balls with a radius per row."""

import torch
from torch import Tensor

from robustkit.primitives.ball import NormName
from robustkit.primitives.norm_balls import project_l1
from robustkit.primitives.rows import along


def projected(norm: NormName, x: Tensor, point: Tensor, radius: Tensor) -> Tensor:
    """`[B, *S]` `point` projected onto the ball of `radius` `[B]` around `x` and onto [0, 1].

    In Linf, L1 and L0 it is the nearest valid point of the ball; in L2, the nearest point of the ball is clipped.
    """
    if norm == "L0":
        return _sparse(x, point.clamp(0, 1), radius)
    change, width = point - x, along(radius.to(x), x)
    if norm == "Linf":
        change = change.clamp(-width, width)
    elif norm == "L2":
        # The factor is at most 1: a point inside the ball must stay where it is (adv-lib scales it up to the surface).
        length = change.flatten(1).norm(dim=1).clamp(min=1e-12)
        change = change * (width / along(length, x)).clamp(max=1)
    else:
        change = project_l1(change, x, radius)
    return (x + change).clamp(0, 1)


def _sparse(x: Tensor, point: Tensor, count: Tensor) -> Tensor:
    """`point` in the `count` values that changed most (the first ones of equal changes), `x` in all others."""
    size = (point - x).abs().flatten(1)
    count = count.long().clamp(0, size.shape[1]).unsqueeze(1)
    most = int(count.max())  # over all rows, but no row's result depends on it
    if most == 0:
        return x
    least = size.topk(most, dim=1).values.gather(1, (count - 1).clamp(min=0))
    equal = size == least
    left = count - (size > least).sum(1, keepdim=True)
    kept = ((size > least) | (equal & (equal.cumsum(1) <= left))) & (count > 0)
    return torch.where(kept.reshape(x.shape), point, x)
