"""Hooks that somebody left on a model: they cost time, keep memory and change results far away from where they came."""

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
    """One hook found on a model."""

    layer: str  # dotted name of the module or parameter; "*" for torch's global hooks
    kind: str  # forward_pre, forward, backward_pre, backward, grad, grad_accumulated, or patched_forward
    owner: str  # module and qualified name of the function or class


def leftover_hooks(model: nn.Module) -> list[HookInfo]:
    """All hooks on modules and parameters, hooks for all modules, and `forward` methods patched on an instance.

    Not all of them are mistakes: torch's older spectral_norm and weight_norm are forward pre-hooks. Hooks on
    intermediate tensors live in the graph and cannot be listed.
    """
    found: list[HookInfo] = []
    for kind, attribute in _KINDS.items():
        everywhere = getattr(torch.nn.modules.module, f"_global{attribute}")
        found += [HookInfo("*", kind, _owner(hook)) for hook in everywhere.values()]
    for name, module in unwrap(model).named_modules():
        for kind, attribute in _KINDS.items():
            found += [HookInfo(name, kind, _owner(hook)) for hook in getattr(module, attribute).values()]
        if "forward" in vars(module):
            found.append(HookInfo(name, "patched_forward", _owner(vars(module)["forward"])))
    for name, parameter in unwrap(model).named_parameters():
        hooks: Mapping[int, Any] = parameter._backward_hooks or {}
        after: Mapping[int, Any] = getattr(parameter, "_post_accumulate_grad_hooks", None) or {}
        found += [HookInfo(name, "grad", _owner(hook)) for hook in hooks.values()]
        found += [HookInfo(name, "grad_accumulated", _owner(hook)) for hook in after.values()]
    return found


def _owner(hook: Any) -> str:
    while isinstance(hook, partial):
        hook = hook.func
    named = hook if hasattr(hook, "__qualname__") else type(hook)  # a callable object is known by its class
    return f"{named.__module__}.{named.__qualname__}"
