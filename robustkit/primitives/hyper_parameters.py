"""The hyper-parameters of an attack as texts and as JSON values."""

import hashlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from functools import partial
from numbers import Integral, Real
from types import FunctionType
from typing import Any, get_args

import torch
from torch import Tensor, nn

from robustkit.primitives.protocol import Attack
from robustkit.primitives.universal import UniversalAttack
from robustkit.primitives.user_code import address, closure_of, instructions

# The threat model, what a session measures on the model, and examples, of which there is a hash.
_NO_HYPER_PARAMETERS = ("eps", "norm", "mask", "feature_shape", "classes", "features", "given")
_FRACTION = re.compile(r"(\d{1,9})/(\d{1,9})")


def parameters(attack: type[Attack] | type[UniversalAttack]) -> Mapping[str, "Field[Any]"]:
    """The hyper-parameters of an attack but its threat model."""
    left_out = (*_NO_HYPER_PARAMETERS, *(["radii"] if issubclass(attack, Attack) and attack.seeks_nearest else []))
    return {field.name: field for field in fields(attack) if field.init and field.name not in left_out}


def value_of(text: str) -> Any:
    """What a text stands for: a truth value, none, a number, a fraction such as 2/255, or itself."""
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    fraction = _FRACTION.fullmatch(text)
    if fraction and int(fraction[2]):
        return int(fraction[1]) / int(fraction[2])
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def typed(text: str, field: "Field[Any]") -> Any:
    """The value of a text for a field: names of layers may look like numbers, and stay names."""
    # With postponed annotations the field's type is a text.
    types = re.findall(r"\w+", field.type) if isinstance(field.type, str) else (field.type, *get_args(field.type))
    if str in types or "str" in types:
        return None if text.lower() == "none" and field.default is None else text
    return value_of(text)


def default_of(field: "Field[Any]") -> Any:
    """The default of a field; `dataclasses.MISSING` where it has none."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def as_text(value: Any) -> str:
    """A value in a specification; a text that contains a comma is quoted, so that it stays one value."""
    where = address(value) if isinstance(value, str) else None
    value = json_value(value) if where is None else where.name
    return repr(value) if isinstance(value, (list, dict)) or "," in str(value) else str(value)


def json_value(value: Any) -> Any:
    """Plain values as they are, collections element by element, and a type with a hash of its content for the rest."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [json_value(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): json_value(each) for key, each in value.items()}
    name = getattr(value, "__name__", type(value).__name__).strip("<>")
    return f"{name}-{hashlib.sha256(_content(value)).hexdigest()[:8]}"


def _content(value: Any) -> bytes:
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        return f"{value.dtype} {list(value.shape)}".encode() + flat.view(torch.uint8).numpy().tobytes()
    if isinstance(value, nn.Module):
        return f"{value} {json_value(value.state_dict())}".encode()
    if isinstance(value, FunctionType):
        return f"{value.__qualname__} {instructions(value.__code__)} {_surroundings(value)}".encode()
    if isinstance(value, partial):
        return f"{json_value([value.func, value.args, value.keywords])}".encode()
    try:
        return pickle.dumps(value)
    except Exception:  # each type that cannot be pickled says so in another way
        return type(value).__qualname__.encode()


def _surroundings(function: FunctionType) -> str:
    """The defaults of a function, and the values of the functions around it that it reads."""
    cells = (each for _, each in closure_of(function))
    values = [each.__qualname__ if isinstance(each, FunctionType) else json_value(each) for each in cells]
    return f"{json_value(function.__defaults__)} {json_value(function.__kwdefaults__)} {values}"
