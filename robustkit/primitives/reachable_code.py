"""The user's code that a function or class may run: its own text, and that of all functions and classes it names."""

import dis
import hashlib
import inspect
import sys
import sysconfig
import tokenize
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from robustkit.host.text import encoded

from .user_code import INSTALLED, closure_of, file_code, instructions

_MOST = 5000  # functions and classes: enough for a network, and an end for what names a whole framework
_STANDARD = Path(sysconfig.get_paths()["stdlib"])
_PLAIN = (int, float, str, bool)
_ELEMENTS, _NESTED = 100, 3  # of lists and mappings, in which functions are looked for
_WRAPPERS = (partial, MethodType, staticmethod, classmethod, property)
_UNREADABLE = (OSError, TypeError, ValueError, SyntaxError, tokenize.TokenError)  # of a file that is being edited, too


def code_of(value: object) -> str:
    """SHA-256 of the code of a function, or of an object that is called like one, with the files that it is in."""
    if isinstance(value, partial):
        return code_of(value.func)
    if isinstance(value, MethodType):
        value = value.__func__
    if not isinstance(value, FunctionType):
        return class_code(type(value))
    file = Path(value.__code__.co_filename)
    return file_code(file.resolve()) if file.is_file() else _hash(reachable_text([value]))


def class_code(kind: type) -> str:
    """SHA-256 of the file of a class and of the neighbours that it imports.

    Where that does not tell classes apart, of what the class may run, too: a notebook's classes belong to no file, and
    those that a function makes differ in the values around them.
    """
    try:
        file = Path(inspect.getfile(kind))
    except (OSError, TypeError):  # a notebook's classes
        return _hash(reachable_text([kind]))
    if not file.is_file():
        return _hash(reachable_text([kind]))
    code = file_code(file.resolve())
    return _hash(f"{code}\n{reachable_text([kind])}") if "<locals>" in kind.__qualname__ else code


def reachable_text(roots: Iterable[object]) -> str:
    """The texts of functions and classes and of those that they name, with defaults and values of functions around.

    Followed are global names, attributes of modules, closures, defaults, base classes, and functions in lists and
    mappings; not what is looked up by a text at run time, and nothing in installed packages. Texts are source where
    there is any, else compiled code, as of a notebook's classes. Plain global values are left out: they may change
    from call to call.
    """
    texts, waiting = list[str](), deque(roots)
    seen = dict[int, object]()  # holding them, so that no other object gets their numbers
    while waiting and len(seen) < _MOST:
        value = waiting.popleft()
        if id(value) not in seen:
            seen[id(value)] = value
            texts += _texts(value)
            waiting += filter(_is_followed, _named_by(value))
    return "\n".join(texts)


def module_of(value: Any) -> str:
    """The name of the module that a function or class is from; empty if it has none."""
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""


def _texts(value: Any) -> Iterator[str]:
    """The text of a function or class, and the plain values that belong to it."""
    if isinstance(value, type):
        # What is not followed is there by its whole source.
        yield _source(value) if _is_installed(value) else f"class {value.__qualname__}"
        for name, each in _attributes(value):
            if not name.startswith("__"):
                yield from _plain_values(name, [each])
    elif isinstance(value, partial):
        yield from _plain_values("partial", (*value.args, *value.keywords.values()))
    elif isinstance(value, FunctionType):
        yield _function_text(value)
        if not _is_installed(value):
            assigned = {step.argval for code in _codes(value.__code__) for step in dis.get_instructions(code)
                        if step.opname == "STORE_DEREF"}  # fmt: skip
            for name, each in _around(value):
                yield from () if name in assigned else _plain_values(name, [each])


def _named_by(value: Any) -> Iterator[object]:
    """What a function, class, method or property may run."""
    if isinstance(value, partial):
        yield from _within((value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, (MethodType, staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset)
    elif isinstance(value, type) and not _is_installed(value):
        yield from value.__bases__
        yield from _within(each for _, each in _attributes(value))
    elif isinstance(value, FunctionType) and not _is_installed(value):
        read, attributes = _names(value)
        found = [value.__globals__[name] for name in read if name in value.__globals__]
        opened = list[ModuleType]()
        for each in found:  # grows with what is in modules
            if isinstance(each, ModuleType) and not _is_library(each) and each not in opened:
                opened.append(each)
                found += [vars(each)[name] for name in attributes if name in vars(each)]
        yield from _within([*found, *(each for _, each in _around(value))])


def _within(values: Iterable[object], depth: int = _NESTED) -> Iterator[object]:
    """The values, those in lists and mappings, and the classes whose methods or objects are among them."""
    for value in values:
        if isinstance(value, (list, tuple)) and depth:
            yield from _within(value[:_ELEMENTS], depth - 1)
        elif isinstance(value, dict) and depth:
            yield from _within([*value.values()][:_ELEMENTS], depth - 1)
        elif inspect.isbuiltin(value):  # as torch.autograd.Function.apply is
            yield value.__self__
        elif isinstance(value, (FunctionType, type, *_WRAPPERS)):
            yield value
        else:
            yield inspect.getattr_static(value, "__wrapped__", None)  # as functools.lru_cache has it
            yield type(value)


def _is_followed(value: object) -> bool:
    if isinstance(value, (FunctionType, type)):
        return not _is_installed(value)
    return isinstance(value, _WRAPPERS)


def _is_installed(value: Any) -> bool:
    """Whether a function or class is of robustkit, of an installed package or of Python itself."""
    module = module_of(value)
    if module.partition(".")[0] == "robustkit":
        return True
    if module == "__main__":  # its file may be that of what started a script or a notebook
        return False
    try:
        return _lies_in_a_library(inspect.getfile(value))
    except (OSError, TypeError, AttributeError):  # made by exec, or written in C
        return not any(isinstance(each, FunctionType) for each in vars(value).values())


def _is_library(module: ModuleType) -> bool:
    name, file = module.__name__.partition(".")[0], getattr(module, "__file__", None)
    if name == "robustkit" or name in sys.stdlib_module_names:
        return True
    return isinstance(file, str) and _lies_in_a_library(file)


def _lies_in_a_library(file: str) -> bool:
    path = Path(file)
    return bool(INSTALLED & set(path.parts)) or path.is_relative_to(_STANDARD)


def _plain_values(name: str, values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if type(value) in _PLAIN:
            # Python refuses to write down long numbers in tens.
            yield f"{name} {value:x}" if type(value) is int else f"{name} {value!r}"


def _attributes(kind: type) -> list[tuple[str, object]]:
    return sorted(((str(name), value) for name, value in vars(kind).items()), key=lambda item: item[0])


def _names(function: FunctionType) -> tuple[list[str], list[str]]:
    """The global names that a function reads, and all names in its code: of attributes, too."""
    codes = [*_codes(function.__code__)]
    read = {step.argval for code in codes for step in dis.get_instructions(code)
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}  # fmt: skip
    return sorted(read), sorted({name for code in codes for name in code.co_names})


def _around(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The values of the functions around it that a function reads, and its defaults, with their names."""
    yield from closure_of(function)
    yield from (("default", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions within it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _function_text(function: FunctionType) -> str:
    # Of the code: the source of a decorated function is that of what it wraps.
    source = _source(function.__code__)
    # Two on one line have the same source.
    compiled = instructions(function.__code__) if not source or function.__name__ == "<lambda>" else ""
    return f"{function.__qualname__} {source}{compiled}"


def _source(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except _UNREADABLE:
        return ""


def _hash(text: str) -> str:
    return hashlib.sha256(encoded(text)).hexdigest()
