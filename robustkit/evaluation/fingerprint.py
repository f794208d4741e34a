"""Fingerprints of models and functions: what tells two of them apart in the evidence."""

import hashlib
import inspect
from typing import Any

from torch import Tensor, nn

from robustkit.models.hashing import hash_tensors


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of what a module computes with: structure, weights, all buffers, plain settings and its own source.

    A forward may read more than that: lists, private attributes, other modules, settings that a library's repr leaves
    out. Those show in the network's answers, which are stored beside this hash. What is hashed here also covers what
    acts only on rare inputs or in the backward pass, and stays as it is, because runs on disk are recognised by it.
    """
    values = {**model.state_dict(), **dict(model.named_buffers())}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    state = hash_tensors(tensors, prefix=str(model), separator="")
    for name, module in model.named_modules():
        # The repr of a library's module shows all of its settings, and the library's version is in the manifest.
        if not _from_a_library(type(module)):
            plain = {key: value for key, value in sorted(vars(module).items()) if _is_setting(key, value)}
            state.update(f"{name} {plain}".encode())
    for kind in sorted({type(module) for module in model.modules()}, key=lambda kind: kind.__qualname__):
        # What transformers' modules compute depends on attributes that their repr leaves out, but their source is the
        # library's, and changes with every version of it.
        if not _from_a_library(kind) and not kind.__module__.startswith(("robustkit.", "transformers.")):
            state.update(_source(kind))
    return state.hexdigest()


def function_fingerprint(function: object) -> str:
    """What tells two functions apart: the content of a module, else a name and its source; "identity" for None."""
    if function is None:
        return "identity"
    if isinstance(function, nn.Module):
        return fingerprint(function)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{name} {hashlib.sha256(_source(function)).hexdigest()[:16]}"


def _from_a_library(kind: type) -> bool:
    return kind.__module__.startswith(("torch.", "torchvision.", "timm."))


def _is_setting(name: str, value: object) -> bool:
    """Whether an attribute is a plain value that a forward may read: a number, a text, or a tuple of them."""
    if name == "training" or name.startswith("_"):
        return False
    items = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, (int, float, str)) for item in items)


def _source(kind: Any) -> bytes:
    try:
        return inspect.getsource(kind).encode()
    except (OSError, TypeError):
        return b""
