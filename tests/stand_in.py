"""A second device on a machine that has only a CPU, to see what would happen on a GPU.

Tensors of the stand-in say that they are on another device, compute on the CPU, and refuse to be mixed with tensors of
the CPU, as those of a GPU do. Each operation for which the host would have to wait for a GPU is noted with the lines
that asked for it. The device is torch's "lazy", because autograd and factory functions accept it without a driver.
"""

import copy
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from robustkit.classifier import repeatability

DEVICE = torch.device("lazy:0")
ROOT = Path(__file__).parents[1]
_READS = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default, torch.ops.aten.nonzero.default}


class Elsewhere(Tensor):
    """A tensor of the stand-in; `held` is the tensor on the CPU."""

    held: Tensor
    waits: ClassVar[list[str]] = []  # of the context that is open: a tensor may be kept for the next one

    @staticmethod
    def __new__(cls, held: Tensor) -> "Elsewhere":
        return Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _computed(function, args, kwargs or {})

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.held.untyped_storage()

    def tolist(self) -> list[Any]:
        self.waits.append(_asked_by("tolist"))
        return self.held.tolist()


class _Factories(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _computed(function, args, kwargs or {})


@contextmanager
def stand_in() -> Iterator[list[str]]:
    """The list of what the host waited for while the context lasts: operations, with the lines that asked for them."""
    waits = Elsewhere.waits = []
    autocast = torch.autocast
    torch._C._set_only_lift_cpu_tensors(True)  # so that torch.tensor(..., device=...) is seen here
    torch.autocast = lambda kind, *more, **options: (
        nullcontext() if kind == DEVICE.type else autocast(kind, *more, **options)
    )
    # On another device than a CPU nobody sees whether a model draws random numbers: it is asked for 64 answers.
    seeds, repeatability._SEEDS = repeatability._SEEDS, 2
    try:
        with _Factories():
            yield waits
    finally:
        torch._C._set_only_lift_cpu_tensors(False)
        torch.autocast = autocast
        repeatability._SEEDS = seeds


def moved(model: nn.Module) -> nn.Module:
    """A copy of a model with its weights on the stand-in; call it inside of `stand_in()`."""
    model = copy.deepcopy(model)
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(weight.detach().to(DEVICE), weight.requires_grad)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(DEVICE)
    return model


def _computed(function, args, kwargs):
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    elsewhere = any(isinstance(each, Elsewhere) for each in tensors)
    asked, copies = kwargs.get("device"), function is torch.ops.aten._to_copy.default
    to_stand_in = asked is not None and torch.device(asked).type == DEVICE.type
    if elsewhere and any(each.dim() and not isinstance(each, Elsewhere) for each in tensors):
        raise RuntimeError(f"{function} mixes tensors of two devices")
    crosses = copies and asked is not None and elsewhere != to_stand_in and not kwargs.get("non_blocking")
    if crosses or (function in _READS and elsewhere):
        Elsewhere.waits.append(_asked_by(str(function)))
    if to_stand_in:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result = function(*tree_map(_held, args), **tree_map(_held, kwargs))
    if to_stand_in or (elsewhere and asked is None):
        return tree_map(lambda each: Elsewhere(each) if type(each) is Tensor else each, result)
    return result


def _held(value: object) -> object:
    return value.held if isinstance(value, Elsewhere) else value


def _asked_by(what: str) -> str:
    own = (frame for frame in reversed(traceback.extract_stack()) if frame.filename.startswith(str(ROOT)))
    lines = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in own if frame.filename != __file__]
    return f"{what} < {' < '.join(lines[:4])}"
