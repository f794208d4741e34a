"""Random directions, for starts that are a given distance away from the image."""

from torch import Tensor

from robustkit.primitives import noise
from robustkit.primitives.rows import along
from robustkit.primitives.threat import Ball


def random_direction(ball: Ball, x: Tensor, key: Tensor) -> Tensor:
    """`[B, *S]` random changes of length 1 in the ball's norm: Linf, L2 or L1."""
    shape = x.shape[1:]
    if ball.norm == "L2":
        return ball.steepest(noise.normal(key, 0, shape).to(x), x)
    if ball.norm == "Linf":
        change = 2 * noise.uniform(key, 0, shape).to(x) - 1
    else:
        change = noise.normal(key, 0, shape).to(x)
    return change / along(change.flatten(1).norm(p=ball.order, dim=1).clamp(min=1e-12), change)
