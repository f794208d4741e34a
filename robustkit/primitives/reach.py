"""How far a linear function can rise within a threat model: what a gradient predicts that an attack can still gain."""

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.ball import Ball
from robustkit.primitives.rounding import wide

_VALUES = 20  # on which a share of the way in L1 is spent, or more
_TURNS = 60  # most turns; each but the last fixes a value at the end of its room, and 4 to 12 are usual


def farthest(ball: Ball, x: Tensor, slopes: Tensor) -> Tensor:
    """The points of ball and box where linear functions are largest.

    Args:
        ball: in Linf, L2 or L1.
        x: `[*S]` clean image in [0, 1], or `[C, *S]` one for each function.
        slopes: `[C, *S]` gradients of the functions.

    Returns:
        `[C, *S]` float64; the image itself where a gradient is 0.

    Raises:
        UserError: for another norm.
    """
    clean, slope = wide(x).reshape(-1, slopes.shape[1:].numel()), wide(slopes).flatten(1)
    room = torch.where(slope > 0, 1 - clean, clean)
    steep = slope.abs()
    if ball.norm == "Linf":
        move = room.clamp(max=ball.eps)
    elif ball.norm == "L1":
        move = _sparse(steep, room, ball.eps)
    elif ball.norm == "L2":
        move = _round(steep, room, ball.eps)
    else:
        raise UserError(f"How far a gradient reaches is known for Linf, L2 and L1, not for {ball.norm}.")
    return (clean + move * slope.sign()).reshape(slopes.shape)


def reach(ball: Ball, x: Tensor, point: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """The largest rise of linear functions from a point to any other point of ball and box, and where it ends.

    Args:
        ball: in Linf, L2 or L1.
        x: `[*S]` clean image in [0, 1].
        point: `[*S]` in ball and box.
        slopes: `[C, *S]` gradients of the functions.

    Returns:
        `[C]` float64 rises, and `[C, *S]` float64 where they end.

    Raises:
        UserError: for another norm.
    """
    ends = farthest(ball, x, slopes)
    return (slopes.double() * (ends - point.double())).flatten(1).sum(1), ends


def along(ball: Ball, x: Tensor, end: Tensor, slope: Tensor, share: float, most: float) -> Tensor:
    """The point after a share of the way from a clean image to where a linear function is largest.

    In L1 that way leads few values far, and nothing is linear there; so a share of the radius is spent on 20 values or
    more.

    Args:
        ball: in Linf, L2 or L1.
        x: `[*S]` clean image in [0, 1].
        end: `[*S]` float64, from `farthest`.
        slope: `[*S]` gradient of the function.
        share: in (0, 1].
        most: that a value moves by, in L1.

    Returns:
        `[*S]` float64.
    """
    if ball.norm != "L1":
        return torch.lerp(wide(x), end, share)
    clean, slopes = wide(x).reshape(1, -1), wide(slope).reshape(1, -1)
    spent = share * ball.eps
    room = torch.where(slopes > 0, 1 - clean, clean).clamp(max=min(most, spent / _VALUES))
    return (clean + _sparse(slopes.abs(), room, spent) * slopes.sign()).reshape(x.shape)


def _sparse(steep: Tensor, room: Tensor, eps: float) -> Tensor:
    """L1: the steepest values move as far as they have room, until `eps` is spent."""
    order = steep.argsort(dim=1, descending=True, stable=True)
    sorted_room = room.gather(1, order)
    left = (eps - (sorted_room.cumsum(1) - sorted_room)).clamp(min=0)
    return torch.zeros_like(room).scatter(1, order, torch.minimum(sorted_room, left))


def _round(steep: Tensor, room: Tensor, eps: float) -> Tensor:
    """L2: values move in proportion to their steepness; those that meet the box stay there, and the others go on."""
    full = torch.zeros_like(steep, dtype=torch.bool)
    move = torch.zeros_like(steep)
    for _ in range(_TURNS):
        spent = (room * full).square().sum(1, keepdim=True)
        free = (steep * ~full).norm(dim=1, keepdim=True)
        pace = (eps**2 - spent).clamp(min=0).sqrt() / free.clamp(min=torch.finfo(free.dtype).tiny)
        move = torch.where(full | (steep == 0), room * full, steep * pace)  # where nothing is steep, any pace is right
        over = (move > room) & ~full
        if not bool(over.any()):
            break
        full |= over
    return torch.minimum(move, room)
