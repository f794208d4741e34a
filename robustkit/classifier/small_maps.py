"""Convolutions of small maps as products with matrices.

Deep networks shrink small images to maps of 2 x 2 or 1 x 1 values. There a convolution is a small matrix, and on a CPU
its product takes less time than torch's convolution, which brings all weights into another order at each call and
multiplies the outer ones by padding. Measured with 3 x 3 kernels, 32 to 256 channels, forwards and backwards of 16 to
256 rows: 0.3 to 0.9 of the time (`bench/small_maps.py`).
"""

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_ENTRIES = 4  # of a matrix, for each weight: with more, the product takes longer than the convolution


def as_matrices(network: nn.Module) -> None:
    """Replace the convolutions in a network of one's own that is called on one or two sizes of images."""
    for name, module in list(network.named_modules()):
        plain = type(module) is nn.Conv2d and module.padding_mode == "zeros" and isinstance(module.padding, tuple)
        if plain and module.groups == 1:
            parent, _, own = name.rpartition(".")
            setattr(network.get_submodule(parent), own, _Convolution(module))


class _Product(NamedTuple):
    """A convolution of maps of one size."""

    matrix: Tensor  # [C * h * w, C' * H * W]
    bias: Tensor | None  # [C * h * w]
    shape: torch.Size  # C, h, w

    def of(self, x: Tensor) -> Tensor:
        return F.linear(x.flatten(1), self.matrix, self.bias).view(-1, *self.shape)


class _Convolution(nn.Module):
    """Computes what `whole` computes.

    Args:
        whole: its weights must not change any more.
    """

    def __init__(self, whole: nn.Conv2d) -> None:
        super().__init__()
        self.whole = whole
        self._products: dict[torch.Size, _Product | None] = {}  # by the size of the map; None where it is too large

    def forward(self, x: Tensor) -> Tensor:
        """`[B, C, h, w]` of `[B, C', H, W]`."""
        size = x.shape[-2:]
        if size not in self._products:
            self._products[size] = self._product(size)
        product_ = self._products[size]
        result: Tensor = self.whole(x) if product_ is None else product_.of(x)
        return result

    def _product(self, size: torch.Size) -> _Product | None:
        whole = self.whole
        assert not isinstance(whole.padding, str), "padding by name"
        rows, columns = (
            _Axis(*each)
            for each in zip(size, whole.kernel_size, whole.stride, whole.padding, whole.dilation, strict=True)
        )
        pairs = rows.length * rows.outputs * columns.length * columns.outputs
        if not 0 < pairs <= _ENTRIES * rows.kernel * columns.kernel:
            return None
        weight = whole.weight.detach()
        matrix = weight.new_zeros(whole.out_channels, rows.outputs, columns.outputs, whole.in_channels, *size)
        for (i, h, y), (j, w, x) in product(rows.met, columns.met):
            matrix[:, h, w, :, y, x] = weight[:, :, i, j]
        bias = None
        if whole.bias is not None:
            bias = whole.bias.detach().repeat_interleave(rows.outputs * columns.outputs)
        return _Product(matrix.flatten(3).flatten(0, 2), bias, matrix.shape[:3])


class _Axis(NamedTuple):
    """A convolution along one axis."""

    length: int
    kernel: int
    stride: int
    padding: int
    dilation: int

    @property
    def outputs(self) -> int:
        return (self.length + 2 * self.padding - self.dilation * (self.kernel - 1) - 1) // self.stride + 1

    @property
    def met(self) -> list[tuple[int, int, int]]:
        """Places in the kernel, the output and the map that meet one another."""
        places = (
            (place, output, output * self.stride - self.padding + place * self.dilation)
            for place, output in product(range(self.kernel), range(self.outputs))
        )
        return [each for each in places if 0 <= each[2] < self.length]
