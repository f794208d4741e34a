"""The source line that breaks a gradient: candidates, from a run of the module with all its operations recorded.

A line is a candidate, not a verdict, because many uses of `detach` are harmless. Fidelity decides whether the module
masks gradients.
"""

import linecache
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from robustkit.nethook.op_sites import STEPS, TO_NUMPY, TORCH, caller, name_of
from robustkit.nethook.soft_choices import COMPARISONS

from .calls import floats

# Operations without a derivative, or whose derivative is zero wherever it exists.
_STEPS = (*STEPS, "argmax", "argmin", "bucketize", "searchsorted", "histc")
_COMPARED = (*COMPARISONS, "eq", "ne", "not_equal", "isclose")
_NO_GRAD = "runs without gradients (no_grad)"


class OpSite(NamedTuple):
    """An operation, the line of the caller's code that called it, and what it does to the gradient."""

    op: str
    file: str
    line: int
    code: str
    reason: str

    @property
    def without_gradients(self) -> bool:
        """Whether it runs where gradients are switched off."""
        return self.reason == _NO_GRAD


def unfold_ops(module: nn.Module, *inputs: Any, **more: Any) -> tuple[OpSite, ...]:
    """The lines where `module`, run on `inputs`, loses its gradient: each once, in execution order.

    Finds float results without a graph, operations with zero derivative, comparisons of values that have a gradient,
    layers that are called under `no_grad`, and custom autograd functions. Layers inside run, but their own operations
    are not listed.
    """
    log = _OperationLog()
    with torch.enable_grad(), _paused_inside(module, log), log:
        output = module(*(_with_grad(value) for value in inputs), **{key: _with_grad(v) for key, v in more.items()})
    sites = [*log.sites, *_custom_functions(floats(output))]
    return tuple(dict.fromkeys(sites))


def ranked(sites: Sequence[OpSite]) -> tuple[OpSite, ...]:
    """The likeliest first: steps and detached values, then custom functions, then comparisons."""
    order = {"comparison": 2, "autograd": 1}
    return tuple(sorted(sites, key=lambda site: order.get(site.reason.split()[0], 0)))


def verdict_from(sites: Sequence[OpSite]) -> str:
    """The verdict that the first of ranked sites explains; empty if it explains none."""
    first = sites[0] if sites else None
    if first is None or first.reason.startswith("comparison") or any(s.reason.startswith("autograd") for s in sites):
        return ""
    return "step" if first.op in _STEPS else "detached"


class _OperationLog(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.sites: list[OpSite] = []
        self.depth = 0  # number of inner layers that are running

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        inputs, name = floats([*args, *(kwargs or {}).values()]), name_of(func)
        # A value must be detached before it can go to numpy.
        if not self.depth and (any(part.requires_grad for part in inputs) or (inputs and name in TO_NUMPY)):
            reason = _reason(name, output)
            if reason is not None:
                self.add(name, reason)
        return output

    def add(self, name: str, reason: str) -> None:
        """Add the line that is running."""
        frame = caller(__file__)
        if frame is not None:
            file, line = frame
            self.sites.append(OpSite(name, file, line, linecache.getline(file, line).strip(), reason))


def _reason(name: str, output: Any) -> str | None:
    if name in _STEPS:
        return "zero derivative almost everywhere"
    if name in _COMPARED:
        return "comparison: its result carries no gradient"
    if name in TO_NUMPY:
        return "leaves torch for numpy"
    detached = any(not part.requires_grad for part in floats(output))
    # `zeros_like`, `expand_as` and others only take the shape of a tensor that has a gradient.
    if not detached or name.endswith(("_like", "_as")) or name.startswith("new_"):
        return None
    return "cut off from the graph" if torch.is_grad_enabled() else _NO_GRAD


@contextmanager
def _paused_inside(module: nn.Module, log: _OperationLog) -> Iterator[None]:
    """Record nothing while layers inside the module run, except that they run without gradients."""

    def enter(layer: nn.Module, args: Any) -> None:
        # Nothing brings the gradient back in inference mode, so it is not listed as `no_grad` is.
        without = not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        if not log.depth and without and any(part.requires_grad for part in floats(args)):
            log.add(type(layer).__name__, _NO_GRAD)
        log.depth += 1

    def leave(*_: Any) -> None:
        log.depth -= 1

    inner = [child for child in module.modules() if child is not module]
    handles = [child.register_forward_pre_hook(enter) for child in inner]
    handles += [child.register_forward_hook(leave) for child in inner]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _custom_functions(outputs: Sequence[Tensor]) -> Iterator[OpSite]:
    """Custom autograd functions in the graph of outputs, at the line of their backward."""
    queue: list[Any] = [part.grad_fn for part in outputs]
    seen: set[Any] = set()
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        queue.extend(before for before, _ in node.next_functions)
        function = getattr(type(node), "_forward_cls", None)
        if function is not None:
            reason = "autograd function with a backward pass of its own"
            yield _definition(function.backward.__code__, function.__name__, reason)


def forward_of(module: nn.Module) -> OpSite | None:
    """The line where a layer's forward is defined; None for layers of torch."""
    code = getattr(type(module).forward, "__code__", None)
    if code is None or Path(code.co_filename).is_relative_to(TORCH):
        return None
    return _definition(code, type(module).__name__, "the layer's forward")


def _definition(code: CodeType, name: str, reason: str) -> OpSite:
    file, line = code.co_filename, code.co_firstlineno
    # Decorators stand before the definition.
    while (text := linecache.getline(file, line).strip()).startswith("@"):
        line += 1
    return OpSite(name, file, line, text, reason)


def _with_grad(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().clone().requires_grad_().clone()
    return value
