"""Random starts: the first query of a restart, and random directions."""

import math

import torch
from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.ball import Ball
from robustkit.primitives.protocol import Trials
from robustkit.primitives.rows import along

_USUAL = {"Linf": 0.03, "L2": 0.5, "L1": 5.0, "L0": 10.0}  # radii that stand for eps where it is infinite


def first_query(ball: Ball, trials: Trials) -> Tensor:
    """`[B, *S]` the image in the first restart, in later ones a random valid point half a radius away.

    In L0 up to a whole radius away, because half of a small number of values is too little.
    """
    x = trials.x
    if not bool((trials.restart > 0).any()):  # saves time and changes no row's value
        return x
    radius = ball.eps if math.isfinite(ball.eps) else _USUAL[ball.norm]
    if ball.norm == "L0":
        shifted = type(ball)(radius).random(x, trials.key, 0)
    else:
        shifted = (x + random_direction(ball, x, trials.key) * (radius / 2)).clamp(0, 1)
    return torch.where(along(trials.restart > 0, x), shifted, x)


def random_direction(ball: Ball, x: Tensor, key: Tensor, draw: Tensor | int = 0) -> Tensor:
    """`[B, *S]` random perturbations of length 1 in the ball's norm (Linf, L2 or L1; for a frame that of Linf)."""
    shape = x.shape[1:]
    if ball.norm == "L2":
        return ball.steepest(noise.normal(key, draw, shape).to(x), x)
    if ball.norm in ("Linf", "frame"):
        change = 2 * noise.uniform(key, draw, shape).to(x) - 1
    else:
        change = noise.normal(key, draw, shape).to(x)
    return change / along(change.flatten(1).norm(p=ball.order, dim=1).clamp(min=1e-12), change)
