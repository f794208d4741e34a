"""Layers and activations in odd and even shapes, small, to see how torch's kernels treat the rows of a batch."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(NamedTuple):
    """One layer, and the shape of an image that it takes."""

    kind: str
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]

    def network(self) -> nn.Module:
        """A classifier in eval mode: the layer, and a linear layer on its output."""
        layer = self.make().eval()
        with torch.no_grad():
            width = layer(torch.zeros(1, *self.shape)).numel()
        return nn.Sequential(layer, nn.Flatten(), nn.Linear(width, 16)).eval()


class Of(nn.Module):
    """A module out of a function."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function to pixels, spread around zero."""
        return self.function(4 * x - 2)


class First(nn.Module):
    """The first of a module's outputs."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        """The module's first output."""
        first: Tensor = self.module(x)[0]
        return first


class SelfAttention(nn.Module):
    """Attention of tokens to each other."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """The attention's output."""
        attended: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return attended


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "mish": F.mish,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "pow": lambda x: (x.abs() + 0.1) ** 1.7,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "relu": F.relu,
    "log": lambda x: (x.abs() + 0.1).log(),
    "hardswish": F.hardswish,
    "logsigmoid": F.logsigmoid,
    "erf": torch.erf,
}
_WIDTHS = (3, 10, 31, 33, 65, 100, 257, 625, 785, 1251, 1999)
_IN = (1, 2, 3, 5, 7, 10, 15, 16, 25, 30, 33, 49, 50, 65, 75, 100, 127, 255, 320, 511, 784, 1025)
_OUT = (2, 3, 7, 10, 16, 33, 50, 65, 100, 256)


def _layers() -> Iterator[Layer]:
    for width, out in product(_IN, _OUT):
        yield Layer("linear", lambda width=width, out=out: nn.Linear(width, out), (width,))
    for function, width in product(ACTIVATIONS.values(), _WIDTHS):
        yield Layer("activation", lambda function=function: Of(function), (width,))
    heads = ((30, 3), (32, 4), (50, 2), (50, 5), (66, 3), (64, 4), (96, 6))
    for (width, head), tokens in product(heads, (1, 5, 7, 16, 17)):
        yield Layer("attention", lambda width=width, head=head: SelfAttention(width, head), (tokens, width))
    for channels, out, kernel, side, stride in product((1, 3, 5, 16), (1, 6, 10, 33), (1, 3, 5), (8, 9, 28), (1, 2)):
        if channels < 5 or side < 28:
            yield Layer(
                "convolution",
                lambda c=channels, o=out, k=kernel, s=stride: nn.Conv2d(c, o, k, s, padding=k // 2),
                (channels, side, side),
            )
    for width, hidden, steps in product((3, 8, 9, 28), (5, 16, 33), (3, 8)):
        for kind, module in (("lstm", nn.LSTM), ("gru", nn.GRU)):
            yield Layer(
                kind, lambda m=module, w=width, h=hidden: First(m(w, h, batch_first=True)), (steps, width)
            )  # fmt: skip
    for channels, groups, side in ((6, 2, 7), (6, 3, 9), (16, 4, 8), (33, 3, 5), (5, 5, 28)):
        yield Layer("norm", lambda c=channels, g=groups: nn.GroupNorm(g, c), (channels, side, side))
    for width in (3, 10, 30, 33, 50, 65, 127, 192):
        yield Layer("norm", lambda width=width: nn.LayerNorm(width), (width,))
        yield Layer("norm", lambda width=width: nn.LayerNorm(width), (7, width))


LAYERS = tuple(_layers())
