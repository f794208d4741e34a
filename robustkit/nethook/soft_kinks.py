"""Soften the kinks of a network in the backward pass; its values stay as they are, bit for bit.

At a kink a derivative shows one side only: behind a ReLU that is off, or a value that max pooling passes over, nothing
reaches the input, however little would switch them. Here a slope turns into the next one as a sigmoid does, and max
pooling passes a gradient on as softmax does. Zhang et al. 2021 ("Backpropagating smoothly", ConBP) and Wang et al. 2023
(arXiv:2306.12685, BPA) do so to find examples that transfer; their widths are constants. Ours follow the largest value
of each row, so that scaling a layer changes nothing and a row does not feel its neighbours.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from robustkit.nethook.bpda import with_gradient_of


@contextmanager
def soft_kinks(activations: float | Tensor = 0.03, pooling: float | Tensor = 0.006) -> Iterator[None]:
    """Soften ReLU, ReLU6, leaky ReLU, hardtanh and 2D max pooling in the backward pass of what runs inside.

    Modules, functions and methods are seen, in place or not, inside of checkpoints, too, and so is a loss that uses
    them. What TorchScript or a compiled graph computes keeps its gradients, and so does pooling with `ceil_mode` or
    indices.

    Args:
        activations: width of the transition at a kink, of the largest absolute value among a row's inputs; `[B]` for
            rows with widths of their own. Layers with B times n rows give each image's n in turn the same width; of
            those with other shapes `[n, B, ...]`, the second axis is that of the rows.
        pooling: temperature of the softmax over a window, in the same unit.
    """
    with _SoftKinks(activations, pooling):
        yield


class _Kinks(NamedTuple):
    """A function of straight pieces."""

    first: float  # slope of the first piece
    jumps: tuple[tuple[float, float], ...]  # where the slope changes, and by how much
    inplace: bool


def _relu(inplace: bool = False) -> _Kinks:
    return _Kinks(0, ((0, 1),), inplace)


def _relu_() -> _Kinks:
    return _relu(inplace=True)


def _relu6(inplace: bool = False) -> _Kinks:
    return _hardtanh(0, 6, inplace)


def _hardtanh(min_val: float = -1, max_val: float = 1, inplace: bool = False) -> _Kinks:
    return _Kinks(0, ((min_val, 1), (max_val, -1)), inplace)


def _leaky_relu(negative_slope: float = 0.01, inplace: bool = False) -> _Kinks:
    return _Kinks(negative_slope, ((0, 1 - negative_slope),), inplace)


# What torch reports a call as, and the kinks that its further arguments stand for.
_ACTIVATIONS: dict[Any, Callable[..., _Kinks]] = {
    F.relu: _relu, torch.relu: _relu, Tensor.relu: _relu, torch.relu_: _relu_, Tensor.relu_: _relu_,
    F.relu6: _relu6, F.hardtanh: _hardtanh, F.leaky_relu: _leaky_relu,
    torch.ops.aten.relu.default: _relu, torch.ops.aten.relu_.default: _relu_,
    torch.ops.aten.hardtanh.default: _hardtanh, torch.ops.aten.leaky_relu.default: _leaky_relu,
}  # fmt: skip
_POOLING = (F.max_pool2d, torch.max_pool2d, torch.ops.aten.max_pool2d.default)


class _SoftKinks(TorchFunctionMode):
    def __init__(self, activations: float | Tensor, pooling: float | Tensor) -> None:
        super().__init__()
        self.activations, self.pooling = activations, pooling

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        x, rest = (args[0], args[1:]) if args else (given.pop("input", given.pop("self", None)), ())
        if isinstance(x, Tensor) and x.dim() > 1 and x.requires_grad and torch.is_grad_enabled():
            if func in _ACTIVATIONS:
                return self._activated(x, _ACTIVATIONS[func](*rest, **given), partial(func, **given), rest)
            window = _Window.of(*rest, **given) if func in _POOLING and x.dim() == 4 else None
            if window is not None:
                return self._pooled(x, func(x, *rest, **given).detach(), window)
        return func(*args, **(kwargs or {}))

    def _activated(self, x: Tensor, kinks: _Kinks, func: Callable[..., Tensor], rest: tuple[Any, ...]) -> Tensor:
        before = x.detach().clone() if kinks.inplace else x.detach()
        value = func(x.clone() if kinks.inplace else x, *rest).detach()
        axis = _axis_of_rows(self.activations, x)
        width = _of_rows(self.activations, x, axis) * _largest(before, axis)
        slope = sum((jump * torch.sigmoid((before - at) / width) for at, jump in kinks.jumps), start=kinks.first)
        with _kept():
            output = with_gradient_of(x * slope, value)
        return x.copy_(output) if kinks.inplace else output

    def _pooled(self, x: Tensor, value: Tensor, window: "_Window") -> Tensor:
        before = x.detach()
        share = torch.softmax(
            window.unfold(before, -torch.inf) / (_of_rows(self.pooling, x, 0) * _largest(before, 0)), 2
        )
        with _kept():
            return with_gradient_of((window.unfold(x, 0) * share).sum(2).reshape(value.shape), value)


def _kept() -> saved_tensors_hooks:
    """What is saved inside for the backward pass is kept, also in a checkpoint, which would compute it again.

    It would do so without softening. All that a checkpoint counts are the tensors that plain functions save, so these
    are called with a graph, too, and nothing follows it.
    """
    return saved_tensors_hooks(_same, _same)


def _same(x: Tensor) -> Tensor:
    return x


class _Window(NamedTuple):
    """The windows of a pooling layer."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(
        cls,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> "_Window | None":
        """The windows that arguments of `max_pool2d` stand for; None where they cannot be softened.

        With `ceil_mode` the last ones may leave the image.
        """
        if ceil_mode or return_indices:
            return None
        return cls(*(_pair(each) for each in (kernel_size, stride or kernel_size, padding, dilation)))

    def unfold(self, x: Tensor, beside: float) -> Tensor:
        """`[B, C, window, windows]` the values of each window; those beside the image are `beside`."""
        rows, columns = self.padding
        padded = F.pad(x, (columns, columns, rows, rows), value=beside) if rows or columns else x
        taken = F.unfold(padded, self.kernel, self.dilation, 0, self.stride)
        return taken.reshape(len(x), x.shape[1], -1, taken.shape[2])


def _pair(value: Any) -> tuple[int, ...]:
    pair = (value,) if isinstance(value, int) else tuple(value)
    return pair * 2 if len(pair) == 1 else pair


def _axis_of_rows(width: float | Tensor, x: Tensor) -> int:
    """The axis of `x` along which its images lie: 1 of a sequence `[length, B, ...]`, as torch's transformers take."""
    count = len(width) if isinstance(width, Tensor) else 1
    return int(x.dim() > 2 and len(x) % count > 0 and x.shape[1] == count)


def _of_rows(width: float | Tensor, x: Tensor, axis: int) -> float | Tensor:
    """A width for each row of `x`, that broadcasts with it."""
    if not isinstance(width, Tensor):
        return width
    times, rest = divmod(x.shape[axis], len(width))
    # Rows that are no images share one width.
    own = width.repeat_interleave(times) if rest == 0 else width.mean().expand(len(x))
    return _beside(own.to(x), x, axis)


def _largest(x: Tensor, axis: int) -> Tensor:
    """The largest absolute value of each row, that broadcasts with `x`."""
    return _beside(x.movedim(axis, 0).flatten(1).abs().amax(1).clamp(min=torch.finfo(x.dtype).tiny), x, axis)


def _beside(values: Tensor, x: Tensor, axis: int) -> Tensor:
    """One value for each row of `x`, that broadcasts with it."""
    return values.reshape(*[1] * axis, -1, *[1] * (x.dim() - axis - 1))
