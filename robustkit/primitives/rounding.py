"""Arithmetic that keeps a promise to the last bit: sums in float64, results rounded to the inside."""

import math

import numpy as np
import torch
from torch import Tensor

Bounds = tuple[float, float]  # the range of valid values


def wide(values: Tensor) -> Tensor:
    """The values in float64."""
    # Apple's devices have no float64, so the CPU computes there.
    return values.cpu().double() if values.device.type == "mps" else values.double()


def scaled(eps: float, bounds: Bounds) -> float:
    """The radius `eps` in units of images in `bounds`: at most `eps * range`, and `eps` at most once divided again."""
    size = bounds[1] - bounds[0]
    radius = eps * size
    while radius / size > eps:
        radius = math.nextafter(radius, 0)
    return radius


def inward(bounds: Bounds, dtype: torch.dtype) -> list[float]:
    """The smallest and the largest number of a type that lie in the bounds."""
    nearest = torch.tensor(bounds, dtype=dtype, device="cpu")
    inner = _next_float(nearest, nearest.flip(0))
    outside = torch.stack([nearest[0].double() < bounds[0], nearest[1].double() > bounds[1]])
    return torch.where(outside, inner, nearest).tolist()


def rounded_towards(clean: Tensor, change: Tensor, limit: Tensor | float) -> Tensor:
    """`clean + change` in the type of `clean`: values that rounding moves beyond `limit` go back by one float."""
    exact = wide(clean)
    near = (exact + change).to(clean)
    beyond = (wide(near) - exact).abs_() > limit
    return torch.where(beyond.to(clean.device), _next_float(near, clean), near)


def _next_float(values: Tensor, goal: Tensor) -> Tensor:
    """The neighbour of each value in the direction of its goal."""
    if values.dtype != torch.float16:
        return values.nextafter(goal)
    # Not every release and device of torch knows the neighbours of this type.
    return torch.from_numpy(np.nextafter(values.cpu().numpy(), goal.cpu().numpy())).to(values.device)
