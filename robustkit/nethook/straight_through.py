"""Gradients through operations that pass none on: rounding, signs, `detach`, `no_grad`, and lookups by a choice.

For a step, the gradient of the identity (Bengio et al. 2013, arXiv:1308.3432); for a lookup, that of a soft choice
(`soft_choices`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from robustkit.nethook.bpda import with_gradient_of
from robustkit.nethook.op_sites import STEPS, TO_NUMPY, GradientStop, caller, is_in_place, name_of
from robustkit.nethook.soft_choices import SoftChoices

CUTS = ("detach", "data")


@contextmanager
def straight_through(images: int = 1) -> Iterator[list[GradientStop]]:
    """Pass gradients on through what runs inside; its values stay as they are, bit for bit.

    Rounding, sign and other steps that keep the shape get the gradient of the identity; `detach` and `no_grad` have no
    effect; what is looked up by `argmax`, `argmin`, `topk` or `sort` gets the gradient of a softmax over the scores.
    Comparisons, custom autograd functions, numpy, TorchScript and compiled graphs keep theirs. Where gradients are off
    when the context begins nothing changes.

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
    with mode:
        yield mode.stops


class _StraightThrough(TorchFunctionMode):
    def __init__(self, images: int) -> None:
        super().__init__()
        self.stops: list[GradientStop] = []
        self.choices = SoftChoices(self._note, images)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        value = args[0] if args and isinstance(args[0], Tensor) and args[0].requires_grad else None
        looks_up = self.choices.has(args, given)
        if (value is None and not looks_up) or torch.is_inference_mode_enabled():
            return func(*args, **given)
        name = name_of(func)
        if value is not None and name in CUTS:
            self._note(GradientStop(name, caller()))
            return value
        if value is not None and name in TO_NUMPY:  # its `detach` was undone above
            return func(value.detach(), *args[1:], **given)
        without = not torch.is_grad_enabled()
        with torch.enable_grad():
            if value is not None and name in STEPS:
                return self._stepped(name, func, value, args, given)
            output = self.choices.followed(func, args, given, func(*args, **given))
        if without and isinstance(output, Tensor) and output.requires_grad:
            self._note(GradientStop("no_grad", caller()))
        return output

    def _stepped(self, name: str, func: Any, value: Tensor, args: Any, given: dict[str, Any]) -> Any:
        """The output of a step, with the gradient of the identity if it has the shape of its input."""
        in_place = is_in_place(func)
        before = value.clone() if in_place else value
        output = func(*args, **given)
        if not output.is_floating_point() or output.shape != value.shape:
            return self.choices.followed(func, args, given, output)
        self._note(GradientStop(name, caller()))
        smooth = before / args[1] if name == "floor_divide" else before
        passed = with_gradient_of(smooth.to(output).expand_as(output), output.detach())
        return value.copy_(passed) if in_place else passed

    def _note(self, stop: GradientStop) -> None:
        if stop not in self.stops:
            self.stops.append(stop)
