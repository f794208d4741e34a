"""Points of a ball that are pictures of 8 bits: what a server can be sent, and so what an attack on it may try.

The clean image is a picture itself; each change is a whole number of levels.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import torch
from torch import Tensor

from robustkit.errors import UserError
from robustkit.primitives.ball import FREE, Ball
from robustkit.primitives.protocol import Attack
from robustkit.primitives.rounding import wide
from robustkit.primitives.threat import exact, is_rendered

WHITE = 255
_ROUNDED_UP = ("Linf", "L2", "L1")  # norms in which rounding to the nearest level may leave the ball
_OFF = 1e-3  # levels that a float32 may be off
A = TypeVar("A", bound=Attack)


def budget(norm: str, eps: Fraction | float) -> int | float:
    """The most that the levels may differ: the largest difference, the sum, the sum of squares or the count."""
    if norm in FREE or eps == math.inf:
        return math.inf
    radius = Fraction(eps)
    if norm == "L0":
        return math.floor(radius)
    return math.floor((radius * WHITE) ** 2 if norm == "L2" else radius * WHITE)


def at_whole_levels(attack: A) -> A:
    """The attack at the largest radius in Linf that is a whole number of levels; in other threats as it is.

    Between two levels it would use room that no picture has, and rounding would take its success away.

    Raises:
        UserError: the ball holds no other picture than its centre.
    """
    norm = attack.ball.norm
    if attack.unlimited or is_rendered(norm) or norm in FREE:
        return attack
    radius = exact(attack.eps) if isinstance(attack.eps, str) else Fraction(attack.eps)
    levels = budget(norm, radius)
    if levels < 1:
        raise UserError(
            f"{norm} {attack.eps} changes no value of an 8-bit image, whose steps are 1/255; take a larger eps."
        )
    if norm != "Linf" or radius == Fraction(int(levels), WHITE):
        return attack
    return replace(attack, eps=f"{levels}/{WHITE}")


def on_levels(ball: Ball, x: Tensor, points: Tensor) -> Tensor:
    """Points `[B, *S]` moved to the nearest picture, or where that lies outside of the ball to one inside.

    A point outside of the ball only goes to the nearest picture. Values that do not change keep the bits of `x`.

    Args:
        ball: with a radius; distances of levels are exact in it.
        x: `[B, *S]` clean pictures: multiples of 1/255.
        points: images in [0, 1].
    """
    clean = (wide(x) * WHITE).round()
    change = wide(points) * WHITE - clean
    size = change.abs()
    nearest, whole = size.round(), size.floor()
    if ball.norm in _ROUNDED_UP:
        room = budget(ball.norm, _radius(ball))
        if math.isfinite(room):
            nearest = torch.where((nearest > whole) & ~_affordable(ball.norm, size, whole, float(room)), whole, nearest)
    steps = change.sign() * nearest
    return torch.where(steps == 0, x, ((clean + steps).clamp(0, WHITE) / WHITE).to(x))


def are_pictures(images: Tensor) -> Tensor:
    """`[B]` whether all values are multiples of 1/255, up to rounding."""
    levels = images.double() * WHITE
    return ((levels - levels.round()).abs() < _OFF).flatten(1).all(1)


def _radius(ball: Ball) -> Fraction | float:
    """The radius; 8/255 as a float is 8 levels, not a little less."""
    levels = ball.eps * WHITE
    near = math.isfinite(levels) and abs(levels - round(levels)) < 1e-9 * max(1, levels)
    return Fraction(round(levels), WHITE) if near else ball.eps


def _affordable(norm: str, size: Tensor, whole: Tensor, room: float) -> Tensor:
    """Which values may be rounded up: those with the largest fractions, as many as the ball has room for.

    All of them in rows that lie outside of the ball anyway.
    """
    if norm == "Linf":
        outside = (whole > room).flatten(1).any(1)
        return (whole + 1 <= room) | outside.reshape(-1, *[1] * (size.dim() - 1))
    spent, cost = (whole.square(), 2 * whole + 1) if norm == "L2" else (whole, torch.ones_like(whole))
    fraction = (size - whole).flatten(1)
    raised = fraction >= 0.5
    order = torch.where(raised, -fraction, 1).argsort(dim=1, stable=True)
    costs = torch.where(raised, cost.flatten(1), 0).gather(1, order)
    total = spent.flatten(1).sum(1, keepdim=True)
    fits = (total + costs.cumsum(1) <= room) | (total > room)
    return torch.zeros_like(fits).scatter(1, order, fits).reshape(size.shape)
