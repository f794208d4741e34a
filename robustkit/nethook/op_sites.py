"""Operations of torch by name, and the lines of code that call them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.overrides import resolve_name

# Operations whose derivative is zero wherever it exists.
STEPS = (
    "round", "floor", "ceil", "trunc", "fix", "sign", "sgn", "heaviside", "floor_divide", "floordiv",
    "fake_quantize_per_tensor_affine",
)  # fmt: skip
QUOTIENTS = ("floor_divide", "floordiv", "div")
TO_NUMPY = ("numpy", "array")  # `x.numpy()`; `np.asarray(x)` calls `x.__array__()`
_AUGMENTED = tuple(f"__i{name}__" for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "pow", "mod"))
TORCH = Path(torch.__file__).resolve().parent
_HERE = Path(__file__).parent
_NAMED = 3  # in a sentence


class CodeLine(NamedTuple):
    """A line of code."""

    file: str
    line: int


@lru_cache(1024)  # torch changes the filters of warnings each time that it is asked
def name_of(func: Any) -> str:
    """Torch's name of an operation, without namespaces."""
    full = resolve_name(func) or getattr(func, "__name__", str(func))
    parts = [part for part in full.split(".") if part != "__get__"]
    if parts[-1] == "__set__":
        return f"set {parts[-2]}"
    return str(parts[-1]).strip("_") if parts[-1] not in ("data",) else "data"


def is_in_place(func: Any) -> bool:
    """Whether an operation writes into its first argument, by its name."""
    name = getattr(func, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def writes(func: Any) -> bool:
    """Whether an operation writes into its first argument, also by `x[i] = y` and `x += y`."""
    name = getattr(func, "__name__", "")
    return is_in_place(func) or name == "__setitem__" or name in _AUGMENTED


def is_step(name: str, given: Mapping[str, Any]) -> bool:
    """Whether an operation rounds, by its name and named arguments."""
    return name in STEPS or (name == "div" and bool(given.get("rounding_mode")))


def unrounded(name: str, value: Tensor, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """What a step rounds: `value`, in place of its first argument, or the quotient of both."""
    return value / (args[1] if len(args) > 1 else given["other"]) if name in QUOTIENTS else value


def without_derivative(output: Tensor) -> bool:
    """Whether torch raises in the backward pass of the operation that made it."""
    return type(output.grad_fn).__name__ == "NotImplemented"


class GradientStop(NamedTuple):
    """An operation that passes no gradient on, or not all of it."""

    op: str
    place: CodeLine | None  # the line that calls it, if it lies outside of torch

    @property
    def text(self) -> str:
        """For a message: the file by its name alone."""
        return self.op if self.place is None else f"{self.op} ({Path(self.place.file).name}, line {self.place.line})"


def named_stops(texts: Sequence[str]) -> str:
    """The first of some stops in a sentence, each by its text."""
    return ", ".join(texts[:_NAMED]) + " and others" * (len(texts) > _NAMED)


def caller(file: str = __file__) -> CodeLine | None:
    """The innermost line outside torch, the hooks of this package and a file of it; None inside an autograd function.

    An autograd function records no graph, and its gradient is its own.

    Args:
        file: whose lines are not meant, because it asks.
    """
    found: CodeLine | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if _in_autograd_function(frame):
            return None
        if found is None and _is_meant(frame.f_code.co_filename, file):
            found = CodeLine(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return found


@lru_cache(4096)  # asked for every call that is running, at every operation
def _is_meant(file: str, asking: str) -> bool:
    path = Path(file)
    ours = path.is_relative_to(TORCH) or path.parent == _HERE or path == Path(asking)
    return path.suffix == ".py" and not ours


def in_autograd_function() -> bool:
    """Whether the forward or the backward of an autograd function is running."""
    return any(map(_in_autograd_function, _frames()))


def in_checkpoint() -> bool:
    """Whether a checkpoint of torch is running."""
    return any(frame.f_code.co_filename == torch.utils.checkpoint.__file__ for frame in _frames())


def _frames() -> Iterator[FrameType]:
    """The calls that are running, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _in_autograd_function(frame: FrameType) -> bool:
    first = frame.f_code.co_varnames[:1]
    # The names first: up to Python 3.12 a frame whose locals are read keeps what it deletes.
    return (
        frame.f_code.co_name in ("forward", "backward")
        and bool(first)
        and isinstance(frame.f_locals.get(first[0]), torch._C._FunctionBase)
    )
