"""Gradients through operations that pass none on: rounding, `detach`, `no_grad`, comparisons, and lookups by a choice.

For a step, the gradient of the identity (Bengio et al. 2013, arXiv:1308.3432); for a comparison and a lookup, that of
a soft choice (`soft_choices`).
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from robustkit.nethook.bpda import with_gradient_of
from robustkit.nethook.kept_values import KeptValues
from robustkit.nethook.op_sites import (
    STEPS,
    TO_NUMPY,
    GradientStop,
    caller,
    in_autograd_function,
    in_checkpoint,
    is_in_place,
    is_step,
    name_of,
    unrounded,
    without_derivative,
    writes,
)
from robustkit.nethook.soft_choices import CHOICES, COMPARISONS, LOOKUPS, SoftChoices, finite_gradient
from robustkit.nethook.structure import mapped, tensors

CUTS = ("detach", "data")
_REMAINDERS, _DIFFERENCES = ("remainder", "fmod", "mod", "frac"), ("sub", "subtract")
_READ = {"requires_grad": False, "is_leaf": True, "grad_fn": None}  # of a tensor that is detached
_INPUT_FIRST = (*STEPS, *CHOICES, *COMPARISONS, *LOOKUPS)
_FLAGS = (*_READ, "set requires_grad")


@contextmanager
def straight_through(images: int = 1) -> Iterator[list[GradientStop]]:
    """Pass gradients on through what runs inside; its values stay as they are, bit for bit.

    Rounding, sign and other steps that keep the shape get the gradient of the identity, as does a value without its
    own remainder, `x - x % q`; `detach` and `no_grad` have no effect; what is looked up by `argmax`, `argmin`, `topk`
    or `sort` gets the gradient of a softmax over the scores, and a comparison that is used as a number that of a
    sigmoid. Custom autograd functions, numpy, TorchScript, compiled graphs, checkpoints and `torch.func` keep theirs.
    Where gradients are off when the context begins nothing changes.
    Two kinds of forward have other values: a `nn.TransformerEncoder` under `no_grad`, which torch runs on its slow path
    inside (equal up to rounding), and what computes with gradients of its own that such operations stop.

    Args:
        images: how many images pass the network at once. A lookup by a choice that would take more than some megabytes
            for each of them keeps its gradient.

    Yields:
        The operations that it acted on so far, each once, in the order of the forward pass.
    """
    mode = _StraightThrough(images)
    if not torch.is_grad_enabled():
        yield mode.stops
        return
    try:
        with mode:
            yield mode.stops
    finally:
        mode.choices.forget()


class _StraightThrough(TorchFunctionMode):
    def __init__(self, images: int) -> None:
        super().__init__()
        self.stops: list[GradientStop] = []
        self.choices = SoftChoices(self._note, images)
        self._kept = KeptValues()
        self._divided: WeakIdKeyDictionary = WeakIdKeyDictionary()  # of each remainder, what was divided
        self._cut: WeakIdKeyDictionary = WeakIdKeyDictionary()  # tensors without gradient outside of the context
        self._restarted: WeakIdKeyDictionary = WeakIdKeyDictionary()  # those that got `requires_grad_()` since

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, given = _by_place(func, args, dict(kwargs or {}))
        if args and writes(func):
            self._kept.before_writing(args[0])
        learning = [each for each in tensors((*args, *given.values())) if each.requires_grad]
        if (not learning and not self.choices.has(args, given)) or _keeps_gradients():
            return func(*args, **given)
        name = name_of(func)
        value = args[0] if args and isinstance(args[0], Tensor) and args[0].requires_grad else None
        if value is not None and name in CUTS:
            self._note(GradientStop(name, caller()))
            if is_in_place(func):
                return self._marked(value)
            return self._marked(_Alias.apply(value, name == "data"))
        if value is not None and (name in TO_NUMPY or func.__name__ == "__float__"):  # its `detach` was undone above
            return func(value.detach(), *args[1:], **given)
        if value is not None and value in self._cut and name in _FLAGS:
            return self._flag(name, value, func, args, given)
        if name == "backward" and self._restarted and given.get("inputs") is None:
            return _accumulate(list(self._restarted), value, given)
        without = not torch.is_grad_enabled()
        if without and ("out" in given or (value is None and writes(func))):
            return self._followed(func, args, given, func(*args, **given))
        if not (without or all(each in self._cut for each in learning)):
            return self._passed(name, func, args, given, value)
        return self._uncut(name, func, args, given, value)

    def _passed(self, name: str, func: Any, args: Any, given: dict[str, Any], value: Tensor | None) -> Any:
        if value is not None and is_step(name, given):
            return self._stepped(name, func, value, args, given)
        if value is not None and name in _DIFFERENCES and not given and self._rest_of(value, args[1]):
            return self._stepped("remainder", func, value, args, given)
        output = self._followed(func, args, given, func(*args, **given))
        if value is not None and name in _REMAINDERS and not is_in_place(func):
            self._divided[output] = weakref.ref(value)
        return output

    def _rest_of(self, value: Tensor, subtracted: object) -> bool:
        """Whether what is subtracted from a value is its own remainder, so that multiples of the divisor are left."""
        if not isinstance(subtracted, Tensor) or subtracted not in self._divided:
            return False
        return self._divided[subtracted]() is value

    def _uncut(self, name: str, func: Any, args: Any, given: dict[str, Any], value: Tensor | None) -> Any:
        """The output with a gradient where the code has none, if autograd allows that operation."""
        without = not torch.is_grad_enabled()
        try:
            with torch.enable_grad(), self._kept.recording():
                output = self._passed(name, func, args, given, value)
        except Exception:  # such as writing into a leaf or into one of several views
            return _without_gradients(func, args, given)
        if any(map(without_derivative, tensors(output))):
            return mapped(output, _detached_in_place if output is value else Tensor.detach)
        if without and isinstance(output, Tensor) and output.requires_grad:
            self._note(GradientStop("no_grad", caller()))
        for each in tensors(output):
            if each is not value:  # what is written into stays what it was
                self._marked(each)
        return output

    def _marked(self, output: Tensor) -> Tensor:
        if output.requires_grad and not output.is_leaf:
            self._cut[output] = True
        return output

    def _flag(self, name: str, value: Tensor, func: Any, args: Any, given: dict[str, Any]) -> Any:
        """What code outside of the context reads about a tensor without gradient, or sets."""
        if name in _READ and len(args) == 1 and not is_in_place(func):
            return _READ[name]
        if (args[1] if len(args) > 1 else given.get("requires_grad", True)) is True:
            value.retain_grad()
            del self._cut[value]
            self._restarted[value] = True
        return value

    def _followed(self, func: Any, args: Any, given: dict[str, Any], output: Any) -> Any:
        fixed = isinstance(output, Tensor) and not output.requires_grad
        with torch.enable_grad():
            passed = self.choices.followed(func, args, given, output)
        return self._marked(passed) if fixed else passed

    def _stepped(self, name: str, func: Any, value: Tensor, args: Any, given: dict[str, Any]) -> Any:
        """The output of a step, with the gradient of the identity if it has the shape of its input."""
        in_place = is_in_place(func)
        before = value.clone() if in_place else value
        output = func(*args, **given)
        if not output.is_floating_point() or output.shape != value.shape:
            return self.choices.followed(func, args, given, output)
        self._note(GradientStop(name, caller()))
        smooth = unrounded(name, before, args, given)
        passed = with_gradient_of(finite_gradient(smooth).to(output).expand_as(output), output.detach())
        return value.copy_(passed) if in_place else passed

    def _note(self, stop: GradientStop) -> None:
        if stop not in self.stops:
            self.stops.append(stop)


class _Alias(torch.autograd.Function):
    """A tensor of its own in the same memory, as `detach` and `data` return it, that passes its gradient on."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, as_data: bool) -> Tensor:
        return value.data if as_data else value.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, None]:
        return grads[0], None


def _by_place(func: Any, args: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments, with `input=...` first where it is."""
    if args or "input" not in given or name_of(func) not in _INPUT_FIRST:
        return args, given
    return (given["input"],), {name: each for name, each in given.items() if name != "input"}


def _accumulate(starts: list[Tensor], loss: Any, given: dict[str, Any]) -> None:
    """What `loss.backward()` does to its leaves; the graph before them is that of the attack, and is kept."""
    before = [start.grad for start in starts]
    graph = {name: given.get(name) or False for name in ("retain_graph", "create_graph")}
    graph["retain_graph"] |= graph["create_graph"]
    grads = torch.autograd.grad(loss, starts, given.get("gradient"), allow_unused=True, **graph)
    for start, old, grad in zip(starts, before, grads, strict=True):
        start.grad = old if grad is None else grad if old is None else old + grad


def _keeps_gradients() -> bool:
    """Whether gradients, if any, are part of the forward, or its operations are run again outside of the context."""
    return (
        torch.is_inference_mode_enabled()
        or torch._C._functorch.maybe_current_level() is not None
        or _runs_again()
        or (not torch.is_grad_enabled() and in_autograd_function())
    )


def _runs_again() -> bool:
    """Whether what runs is a checkpoint's, or saves its tensors in another way of the caller's."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return in_checkpoint() if top is None else top(True) is not None  # torch 2.6 does not say


def _detached_in_place(value: Tensor) -> Tensor:
    return value.detach_()


def _without_gradients(func: Any, args: Any, given: dict[str, Any]) -> Any:
    with suppress(Exception), torch.no_grad():  # writes into the same tensor
        return func(*args, **given)
    return func(*mapped(args, Tensor.detach), **mapped(given, Tensor.detach))
