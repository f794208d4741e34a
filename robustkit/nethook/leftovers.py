"""Lists the hooks on a model; forgotten hooks cost time and memory and change results of other code."""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from robustkit.nethook.names import unwrap

_KINDS = {
    "forward_pre": "_forward_pre_hooks",
    "forward": "_forward_hooks",
    "backward_pre": "_backward_pre_hooks",
    "backward": "_backward_hooks",
}


class HookInfo(NamedTuple):
    """One hook on a model."""

    layer: str  # dotted name of the module or parameter; "*" for torch's global hooks
    kind: str  # forward_pre, forward, backward_pre, backward, grad, grad_accumulated, or patched_forward
    owner: str  # module and qualified name of the function or class


def leftover_hooks(model: nn.Module) -> list[HookInfo]:
    """All hooks on modules and parameters, hooks for all modules, and `forward` methods patched on an instance.

    Not all of them are mistakes: torch's older spectral_norm and weight_norm are forward pre-hooks. Hooks on
    intermediate tensors belong to the graph and cannot be listed.
    """
    hooks: list[HookInfo] = []
    for kind, attribute in _KINDS.items():
        for_all = getattr(torch.nn.modules.module, f"_global{attribute}")
        hooks += [HookInfo("*", kind, _owner(hook)) for hook in for_all.values()]
    for name, module in unwrap(model).named_modules():
        for kind, attribute in _KINDS.items():
            hooks += [HookInfo(name, kind, _owner(hook)) for hook in getattr(module, attribute).values()]
        if "forward" in vars(module):
            hooks.append(HookInfo(name, "patched_forward", _owner(vars(module)["forward"])))
    for name, parameter in unwrap(model).named_parameters():
        on_grad: Mapping[int, Any] = parameter._backward_hooks or {}
        on_accumulation: Mapping[int, Any] = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        hooks += [HookInfo(name, "grad", _owner(hook)) for hook in on_grad.values()]
        hooks += [HookInfo(name, "grad_accumulated", _owner(hook)) for hook in on_accumulation.values()]
    return hooks


def _owner(hook: Any) -> str:
    while isinstance(hook, partial):
        hook = hook.func
    named = hook if hasattr(hook, "__qualname__") else type(hook)  # a callable object has the name of its class
    return f"{named.__module__}.{named.__qualname__}"
