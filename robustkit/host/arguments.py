"""Arguments of the library compared with their annotations, so that a wrong type is one sentence and no deep error."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import InitVar, fields, is_dataclass
from functools import wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Final, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from torch import Tensor

from robustkit.errors import UserError, nearest

P = ParamSpec("P")
R = TypeVar("R")

_EITHER: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_BY_NAME: Final = inspect.Parameter.KEYWORD_ONLY
_PLACE: Final = re.compile(r"\b(?:\w+\.)+(\w+)")  # a name with its modules
_MANY: Final = 1000  # elements of a list that are looked at
_TOLD: Final = 6  # elements of a list whose types are told


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which now refuses unknown arguments and those of the wrong type with a `UserError`."""
    return checked_arguments_but()(function)


def checked_arguments_but(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """As `checked_arguments`, but the function itself looks at the types of some arguments."""

    def checked(function: Callable[P, R]) -> Callable[P, R]:
        signature, hints, name = inspect.signature(function), _hints(function), _called(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = bound_arguments(name, signature, args, kwargs)
            check_types(name, {key: value for key, value in given.items() if key not in names}, hints)
            return function(*args, **kwargs)

        return call

    return checked


def _called(function: Callable[..., object]) -> str:
    """The name by which a function is called: of `__init__` that of its class."""
    return function.__name__ if function.__name__ != "__init__" else function.__qualname__.split(".")[-2]


def bound_arguments(
    name: str, signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, Any]:
    """The arguments of a call by the names of the parameters of the function `name`.

    Raises:
        UserError: the function has no such argument, gets too many by position, or lacks one.
    """
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise UserError(f"{name}(){_misfit(signature, args, kwargs) or f': {error}.'}") from None


def _misfit(signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """What does not fit, and the fix; empty where an argument is missing, or given twice."""
    kinds = {key: parameter.kind for key, parameter in signature.parameters.items()}
    names = [key for key, kind in kinds.items() if kind in (_EITHER, _BY_NAME)]
    unknown = [key for key in kwargs if key not in names]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds.values():
        fix = _inside(unknown[0], signature) or nearest(unknown[0], names, 1)
        return f" has no argument {unknown[0]!r}; {fix}"
    first = [key for key in names if kinds[key] == _EITHER]
    if len(args) > len(first) and not {*kinds.values()} - {_EITHER, _BY_NAME}:
        rest = [key for key in names if kinds[key] == _BY_NAME]
        fix = f"give the others by name, such as {rest[0]}=" if rest else "leave out the others"
        most = f"only {', '.join(first)}" if first else "nothing"
        return f" takes {most} by position, not {len(args)} values; {fix}."
    return ""


def _inside(name: str, signature: inspect.Signature) -> str:
    """How to give what is a field of an argument's object, such as `numerics`; empty if it is none."""
    for key, parameter in signature.parameters.items():
        kind = type(parameter.default)
        if is_dataclass(kind) and name in {each.name for each in fields(kind)}:
            return f"give {key}=robustkit.{kind.__name__}({name}=...)."
    return ""


def check_fields(value: Any, name: str = "", but: Collection[str] = (), **further: object) -> None:
    """Check the fields of a dataclass's object, and its `InitVar`s, which are given by name.

    Args:
        value: the object.
        name: what errors call the function; by default its class.
        but: fields that are not checked.
        further: its `InitVar`s.

    Raises:
        UserError: one has the wrong type.
    """
    kind = type(value)
    hints = {name: hint.type if isinstance(hint, InitVar) else hint for name, hint in _hints(kind).items()}
    own = {field.name: getattr(value, field.name) for field in fields(kind) if field.name not in but}
    check_types(name or kind.__name__, {**own, **further}, hints)


def check_types(name: str, values: Mapping[str, object], hints: Mapping[str, object]) -> None:
    """Check values by their names against annotations.

    Raises:
        UserError: one does not fit; the sentence names it.
    """
    for key, value in values.items():
        if key in hints and not fits(value, hints[key]):
            raise UserError(f"{name}(): {key} must be {_words(hints[key])}, not {kind_of(value)}.")


def fits(value: object, hint: Any) -> bool:
    """Whether a value is what an annotation says; True for annotations that say nothing about a value alone."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return any(value == each for each in inner)
    if origin is tuple:
        return isinstance(value, (tuple, list)) and _elements_fit(value, inner)
    if isinstance(origin, type):
        return _is_collection(value, origin, inner)
    if hint is None:
        return value is None
    return _is_one(value, hint) if isinstance(hint, type) else True


def _is_one(value: object, kind: type) -> bool:
    if kind in (float, int):
        # A truth value is a whole number to Python, and audit=True would audit one image.
        return isinstance(value, Real if kind is float else Integral) and not isinstance(value, bool)
    if kind is bool:
        return isinstance(value, (bool, np.bool_))
    if getattr(kind, "_is_protocol", False):
        there = dir(value)
        return not isinstance(value, type) and all(
            name in there or hasattr(value, name) for base in kind.__mro__ if getattr(base, "_is_protocol", False)
            for name in vars(base) if not name.startswith("_") or name == "__len__"
        )  # fmt: skip
    return isinstance(value, kind)


def _is_collection(value: object, origin: type, inner: tuple[Any, ...]) -> bool:
    if origin is Sequence and isinstance(value, (Tensor, np.ndarray)):
        return True
    if not isinstance(value, origin) or isinstance(value, (str, bytes)):
        return False
    if isinstance(value, (list, tuple)) and inner:
        return _elements_fit(value, (inner[0], ...))
    return True


def _elements_fit(value: Sequence[object], inner: tuple[Any, ...]) -> bool:
    if len(inner) == 2 and inner[1] is ...:
        return all(fits(each, inner[0]) for each in value[:_MANY])
    return len(value) == len(inner) and all(map(fits, value, inner))


def _hints(of: Any) -> dict[str, Any]:
    try:
        return {name: hint for name, hint in get_type_hints(of).items() if name != "return"}
    except NameError:  # names that only type checkers import
        return {}


def kind_of(value: object) -> str:
    """The type of a value, in words; of a short tuple or list also those of its elements."""
    name = type(value).__name__
    if type(value) not in (tuple, list) or not 0 < len(value) <= _TOLD:  # type: ignore[arg-type]
        return name
    return f"{name}[{', '.join(type(each).__name__ for each in value)}]"  # type: ignore[attr-defined]


def _words(hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(_words(each) for each in get_args(hint))
    if hint in (None, NoneType):
        return "None"
    if get_origin(hint) is np.ndarray:
        return "ndarray"
    return hint.__name__ if get_origin(hint) is None and isinstance(hint, type) else _PLACE.sub(r"\1", str(hint))
