"""Inputs of any shape as images with channels, rows and columns."""

from torch import Tensor

Plane = Tensor  # [B, C, H, W]


def plane(x: Tensor) -> Plane:
    """`[B, *S]` of any shape as a view `[B, C, H, W]`."""
    shape = (1,) * max(0, 3 - (x.dim() - 1)) + tuple(x.shape[1:])
    return x.reshape(len(x), -1, *shape[-2:])
