"""The total variation of a field of displacements, which smooth attacks subtract from their loss."""

import torch
from torch import Tensor

_FLAT = 1e-8  # added to squared lengths, because the square root has no derivative at 0


def roughness(field: Tensor) -> Tensor:
    """`[B]` total variation of fields `[B, C, *grid]`: lengths of the differences of neighbours, each counted twice."""
    total = torch.zeros_like(field.flatten(1)[:, 0])
    for axis in range(2, field.dim()):
        total = total + 2 * _length(field.diff(dim=axis)).flatten(1).sum(1)
    return total


def roughness_slope(field: Tensor) -> Tensor:
    """`[B, C, *grid]` the gradient of `roughness`."""
    slope = torch.zeros_like(field)
    for axis in range(2, field.dim()):
        change = field.diff(dim=axis)
        pull = 2 * change / _length(change)
        side = field.shape[axis]
        slope.narrow(axis, 1, side - 1).add_(pull)
        slope.narrow(axis, 0, side - 1).sub_(pull)
    return slope


def _length(change: Tensor) -> Tensor:
    total = torch.zeros_like(change[:, :1])
    for channel in change.square().unbind(1):
        total = total + channel.unsqueeze(1)
    return (total + _FLAT).sqrt()
