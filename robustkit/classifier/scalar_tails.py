"""Which rows of a batch an operation computes with another formula than the others.

torch computes most elements of a tensor with vector instructions and the last few, of the tensor or of a thread's part,
one at a time. For sigmoid, SiLU, ELU, Mish, softplus, pow and others the two formulas round differently in about one
value of ten, so the bits of a row depend on whether the end of a tensor falls into it. Comparing the answers to some
images would overlook that by luck. Here each operation is tried by itself: on a tensor of the same shape, filled with a
number for which its two formulas are known to differ, the elements that are computed one at a time show.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from robustkit.primitives import noise

_TRIED = 768  # numbers tried in both formulas; where they differ at all, they differ for 1 to 30 % of all numbers
_AT_ONCE = 4  # fewer than any vector holds twice, so that none is used
_LENGTH = 4096  # of a tensor at whose beginning surely the vector formula is used


class Witness(NamedTuple):
    """Arguments for which an operation's two formulas give two results."""

    values: list[float]  # one for each tensor among the arguments
    vectorised: float


class ScalarTails(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the context lasts, each elementwise operation is tried once for each shape.

    Args:
        rows: of the batch that is being computed.

    Attributes:
        traces: `[rows, n]` bool of each operation that treats rows differently: which elements it computes alone.
        unclear: an operation uses both formulas on a tensor whose rows cannot be told.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows = rows
        self.traces: list[Tensor] = []
        self.unclear = False
        self._tried: set[object] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: torch would import its compiler, which takes a second or two, to keep it away from this class."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute the operation, then try it."""
        kwargs = kwargs or {}
        # Before the call, which may write into its arguments or change their shape.
        call = _Call.of(func, args, kwargs)
        result = func(*args, **kwargs)
        if call is not None and call.key not in self._tried and isinstance(result, Tensor):
            self._tried.add(call.key)
            self._try(call, len(result) if result.dim() else 0)
        return result

    def _try(self, call: "_Call", length: int) -> None:
        witness = _witness(call)
        if witness is None:
            return
        alone = call.result(witness.values) != witness.vectorised
        if not bool(alone.any()):
            return
        if length != self.rows:
            self.unclear = True
            return
        trace = alone.reshape(self.rows, -1)
        if bool((trace != trace[:1]).any()):
            self.traces.append(trace)


class _Call:
    """An elementwise operation with its arguments, of whose tensors only shape and layout are kept."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> None:
        self.func = func
        self.shapes = [(tensor.shape, tensor.stride()) for tensor in tensors]
        self.dtype = tensors[0].dtype
        self.args = [None if isinstance(each, Tensor) else each for each in args]
        self.places = [place for place, each in enumerate(args) if isinstance(each, Tensor)]
        self.kwargs = kwargs
        self.kind = (str(func), self.dtype, str(self.args), str(kwargs))
        self.key = (*self.kind, tuple(self.shapes))

    @classmethod
    def of(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> "_Call | None":
        """The call, if it is elementwise, on tensors of one floating point type."""
        name = func._schema.name
        if torch.Tag.pointwise not in func.tags and not name.endswith("_backward"):
            return None
        tensors = [each for each in args if isinstance(each, Tensor)]
        if any(isinstance(each, Tensor) for each in kwargs.values()) or not tensors:
            return None
        one_type = len({(each.dtype, each.layout, each.device.type) for each in tensors}) == 1
        plain = tensors[0].is_floating_point() and tensors[0].layout == torch.strided
        same_shape = len({each.shape for each in tensors if each.dim()}) == 1
        return cls(func, args, kwargs, tensors) if one_type and plain and same_shape else None

    def result(self, values: list[float]) -> Tensor:
        """The operation on tensors of its shapes and layouts, each filled with one number."""
        return self.of_tensors(
            [_filled(*shape, value, self.dtype) for shape, value in zip(self.shapes, values, strict=True)]
        )

    def of_tensors(self, tensors: list[Tensor]) -> Tensor:
        """The operation on other tensors."""
        args = list(self.args)
        for place, tensor in zip(self.places, tensors, strict=True):
            args[place] = tensor
        result: Tensor = self.func(*args, **self.kwargs)
        return result


_WITNESSES: dict[object, Witness | None] = {}


def _witness(call: _Call) -> Witness | None:
    if call.kind not in _WITNESSES:
        try:
            _WITNESSES[call.kind] = next(_witnesses(call), None)
        except (RuntimeError, TypeError, ValueError):
            # No elementwise operation after all: its arguments do not go together in another shape.
            _WITNESSES[call.kind] = None
    return _WITNESSES[call.kind]


def _witnesses(call: _Call) -> Iterator[Witness]:
    names = torch.arange(len(call.places), device="cpu")
    tried = (3 * noise.normal(noise.keys(0, names), 0, (_TRIED,))).to(call.dtype)
    tried[:, ::2].abs_()  # a power of a negative number is none
    vectorised = call.of_tensors([torch.cat([row, row.new_ones(_LENGTH - _TRIED)]) for row in tried.clone()])
    for part in torch.split(torch.arange(_TRIED, device="cpu"), _AT_ONCE):
        alone = call.of_tensors([row[part] for row in tried])
        for number in part[(alone != vectorised[part]) & alone.isfinite()].tolist():
            yield Witness(tried[:, number].tolist(), vectorised[number].item())


def _filled(shape: torch.Size, stride: tuple[int, ...], value: float, dtype: torch.dtype) -> Tensor:
    needed = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return torch.full((max(needed, 1),), value, dtype=dtype, device="cpu").as_strided(shape, stride)
