"""The user's code that a function or class may run: its own text, and that of all functions and classes it names."""

import dis
import inspect
import sysconfig
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .user_code import INSTALLED, class_text, instructions

_MOST = 1000  # functions and classes: enough for a network, and an end for what names a whole framework
_STANDARD = Path(sysconfig.get_paths()["stdlib"])


def reachable_text(roots: Iterable[object]) -> str:
    """The texts of functions and classes and of those that they name, and the plain values that they read.

    Followed are global names, attributes of modules, closures, defaults and base classes; not what is looked up by a
    text at run time, and nothing in installed packages. Texts are source where there is any, else compiled code, as of
    a notebook's classes.
    """
    texts, seen, waiting = list[str](), set[int](), deque(roots)
    while waiting and len(seen) < _MOST:
        value = waiting.popleft()
        if id(value) not in seen:
            seen.add(id(value))
            texts += _texts(value)
            waiting += filter(_is_followed, _named_by(value))
    return "\n".join(texts)


def _texts(value: object) -> Iterator[str]:
    """The text of a function or class, and the plain values that it reads."""
    if isinstance(value, type):
        yield class_text(value)
    elif isinstance(value, partial):
        yield from _plain_values("partial", (*value.args, *value.keywords.values()))
    elif isinstance(value, FunctionType):
        yield _function_text(value)
        yield from () if _is_installed(value) else _read_by(value)


def _named_by(value: Any) -> Iterator[object]:
    """What a function, class, method or property may run."""
    if isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, (MethodType, staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset)
    elif isinstance(value, type) and not _is_installed(value):
        yield from value.__bases__
        yield from (each for _, each in sorted(vars(value).items()))
    elif isinstance(value, FunctionType) and not _is_installed(value):
        names, known = _names(value), value.__globals__
        modules = [known[name] for name in names if isinstance(known.get(name), ModuleType)]
        yield from (known[name] for name in names if name in known)
        yield from (vars(module)[name] for module in modules for name in names if name in vars(module))
        yield from (each for _, each in _around(value))


def _is_followed(value: object) -> bool:
    if isinstance(value, (FunctionType, type)):
        return not _is_installed(value)
    return isinstance(value, (partial, MethodType, staticmethod, classmethod, property))


def _is_installed(value: Any) -> bool:
    """Whether a function or class is of robustkit, of an installed package or of Python itself."""
    if value.__module__ in (None, "builtins") or value.__module__.partition(".")[0] == "robustkit":
        return True
    if value.__module__ == "__main__":  # its file may be that of what started a script or a notebook
        return False
    try:
        file = Path(inspect.getfile(value))
    except (OSError, TypeError):  # a notebook's classes belong to no file
        return False
    return bool(INSTALLED & set(file.parts)) or file.is_relative_to(_STANDARD)


def _read_by(function: FunctionType) -> Iterator[str]:
    """The plain values that a function reads and never assigns."""
    assigned = {step.argval for code in _codes(function.__code__) for step in dis.get_instructions(code)
                if step.opname in ("STORE_GLOBAL", "STORE_DEREF")}  # fmt: skip
    for name in _names(function):
        if name not in assigned:
            yield from _plain_values(name, [function.__globals__.get(name)])
    for name, value in _around(function):
        if name not in assigned:
            yield from _plain_values(name, [value])


def _plain_values(name: str, values: Iterable[object]) -> Iterator[str]:
    return (f"{name} {value!r}" for value in values if isinstance(value, (int, float, str)))


def _names(function: FunctionType) -> list[str]:
    return sorted({name for code in _codes(function.__code__) for name in code.co_names})


def _around(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The values of the functions around it that a function reads, and its defaults, with their names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    yield from (("default", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _function_text(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{function.__qualname__} {instructions(function.__code__)}"
