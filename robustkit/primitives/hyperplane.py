"""The nearest point on a hyperplane, among the valid images: the step of attacks that linearise the classifier.

The problem and its solution are those of Croce & Hein 2020, arXiv:1907.02044, section 2.2. Ours differs: how far the
hyperplane's function can rise is a concave, piecewise linear function of the distance, so Newton's method from zero
never overshoots and ends on the right piece after a few turns; they sort all values. For L1 we sort, too.
"""

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.ball import NormName
from robustkit.primitives.rows import along

_TURNS = 60  # Newton's method needs 4 to 12; the rest of the way would be shorter than rounding
_ROUNDING = 1e-6  # of the way: what is left is not worth a turn


def to_hyperplane(norm: NormName, point: Tensor, normal: Tensor, rise: Tensor) -> Tensor:
    """The smallest change of `point` along which a linear function rises by `rise`, without leaving [0, 1].

    Where [0, 1] does not allow so much, the change that rises as much as it can.

    Args:
        norm: in which the change is small: "Linf", "L2" or "L1".
        point: `[B, *S]` in [0, 1].
        normal: `[B, *S]` gradient of the linear function.
        rise: `[B]`, negative to fall.

    Returns:
        `[B, *S]` the change.

    Raises:
        UserError: for another norm.
    """
    if norm not in ("Linf", "L2", "L1"):
        raise UserError(f"The nearest point on a hyperplane is known for Linf, L2 and L1, not for {norm}.")
    slope = (normal * along(rise.sign(), normal)).flatten(1)
    flat = point.flatten(1)
    room = torch.where(slope > 0, 1 - flat, flat) * (slope != 0)
    largest = slope.abs().amax(1, keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)
    weight, way = slope.abs() / largest, rise.abs().unsqueeze(1).to(slope) / largest
    size = _sparsest(weight, room, way) if norm == "L1" else _even(weight, room, way, norm)
    return (size * slope.sign()).reshape(point.shape)


def _even(weight: Tensor, room: Tensor, way: Tensor, norm: NormName) -> Tensor:
    """Linf: every value changes alike. L2: in proportion to its weight. Each as far as it has room."""
    speed = torch.ones_like(weight) if norm == "Linf" else weight
    time = torch.zeros_like(way)
    for _ in range(_TURNS):
        size = torch.minimum(time * speed, room)
        left = way - (weight * size).sum(1, keepdim=True)
        slope = (weight * speed * (size < room)).sum(1, keepdim=True)
        # A row that has arrived, or has no room, does not move, however many turns the other rows need.
        moves = (left > _ROUNDING * way) & (slope > 0)
        if not bool(moves.any()):
            break
        time = torch.where(moves, time + left / slope.clamp(min=torch.finfo(slope.dtype).tiny), time)
    return torch.minimum(time * speed, room)


def _sparsest(weight: Tensor, room: Tensor, way: Tensor) -> Tensor:
    """L1: the values of largest weight change as far as they have room, until the way is made."""
    order = weight.argsort(dim=1, descending=True, stable=True)
    gain = (weight * room).gather(1, order)
    before = gain.cumsum(1) - gain
    share = ((way - before) / gain.clamp(min=torch.finfo(gain.dtype).tiny)).clamp(0, 1)
    return torch.zeros_like(room).scatter(1, order, share * room.gather(1, order))
