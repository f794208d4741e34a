"""Fingerprints of models and functions: what tells two of them apart in the evidence."""

import hashlib
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn
from torch.overrides import _get_current_function_mode_stack

from robustkit.host.text import encoded
from robustkit.models.hashing import hash_tensors
from robustkit.nethook.hooked import active_edits
from robustkit.primitives.hyper_parameters import json_value
from robustkit.primitives.reachable_code import module_of, reachable_text
from robustkit.primitives.user_code import closure_of

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_HASHED = ("_parameters", "_buffers", "_modules")  # attributes of a module whose content `fingerprint` hashes
_FUNCTIONS = (FunctionType, MethodType, partial)


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of what a module computes with: structure, weights, all buffers, plain settings and the user's code.

    A forward may read more than that: lists, private attributes, settings that a library's repr leaves out. Those show
    in the network's answers, which are stored beside this hash. What is hashed here also covers what acts only on rare
    inputs or in the backward pass, and active edits of `robustkit.nethook`. Missed is a list, a private attribute or a
    tensor of the user's module that acts there alone.
    """
    values = {**model.state_dict(), **dict(model.named_buffers())}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    state = hash_tensors(tensors, prefix=str(model), separator="")
    for name, module in model.named_modules():
        # The repr of a library's module shows all of its settings, and the library's version is in the manifest.
        if not _from_a_library(module_of(type(module))):
            plain = {key: value for key, value in sorted(vars(module).items()) if _is_setting(key, value)}
            state.update(f"{name} {plain}".encode())
        for probe in active_edits(module):
            state.update(encoded(f"{name} {_described_edit(probe)}"))
    for mode in _get_current_function_mode_stack():  # type: ignore[no-untyped-call] # such as soft_kinks
        if module_of(type(mode)).startswith("robustkit."):
            state.update(encoded(f"{type(mode).__qualname__} {json_value(vars(mode))}"))
    state.update(encoded(reachable_text(_code_of(model))))
    return state.hexdigest()


def _code_of(model: nn.Module) -> Iterator[object]:
    """The classes of a model's modules, the functions among their attributes, and their hooks; not a library's."""
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        # What transformers' modules compute depends on attributes that their repr leaves out, but their source is the
        # library's, and changes with every version of it.
        if not _is_known(kind):
            yield kind
    for module in model.modules():
        hooks = [each for name in _HOOKS for each in getattr(module, name, {}).values()]
        hooks = [each if isinstance(each, _FUNCTIONS) else type(each) for each in hooks]
        attributes = [each for _, each in sorted(vars(module).items()) if isinstance(each, _FUNCTIONS)]
        yield from (each for each in (*attributes, *hooks) if not _is_known(each))


def function_fingerprint(function: object) -> str:
    """What tells two functions apart: the content of a module, else a name and its source; and the values it holds.

    "identity" for None.
    """
    if function is None:
        return "identity"
    if isinstance(function, nn.Module):
        other = {key: each for key, each in vars(function).items() if key not in _HASHED}
        return f"{fingerprint(function)} {_hash_of_values(other)}"
    name = getattr(function, "__qualname__", type(function).__qualname__)
    text = reachable_text([function, type(function)])
    return f"{name} {_short_hash(text)} {_hash_of_values(_held_by(function))}"


def _held_by(function: object) -> list[object]:
    """The values around a function, the arguments of a partial one, and the attributes of what is called like one."""
    if isinstance(function, partial):
        return [_held_by(function.func), function.args, function.keywords]
    if isinstance(function, MethodType):
        return [_held_by(function.__func__), getattr(function.__self__, "__dict__", {})]
    if isinstance(function, FunctionType):
        return [*(each for _, each in closure_of(function)), function.__defaults__, function.__kwdefaults__]
    return [getattr(function, "__dict__", {})]


def _described_edit(probe: object) -> str:
    """The kind of an edit, its texts, and its functions."""
    values = [each for _, each in sorted(vars(probe).items())]
    texts = [each for each in values if isinstance(each, str)]
    given = [each for each in values if callable(each) and not module_of(type(each)).startswith("robustkit.")]
    return " ".join([type(probe).__qualname__, *texts, *map(function_fingerprint, given)])


def _hash_of_values(values: object) -> str:
    return _short_hash(str(json_value(values)))


def _short_hash(text: str) -> str:
    return hashlib.sha256(encoded(text)).hexdigest()[:16]


def _is_known(value: Any) -> bool:
    """Whether a function or class is of a library whose version is in the manifest, or of robustkit."""
    module = module_of(value.func if isinstance(value, partial) else value)
    return _from_a_library(module) or module.startswith(("robustkit.", "transformers."))


def _from_a_library(module: str) -> bool:
    return module.startswith(("torch.", "torchvision.", "timm."))


def _is_setting(name: str, value: object) -> bool:
    """Whether an attribute is a plain value that a forward may read: a number, a text, or a tuple of them."""
    if name == "training" or name.startswith("_"):
        return False
    items = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, (int, float, str)) for item in items)
