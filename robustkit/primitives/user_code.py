"""Python files of the user: `path/file.py:NAME` loads a function or a class by its name."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from robustkit.errors import UserError


class Address(NamedTuple):
    """Where the function is."""

    file: Path
    function: str

    @property
    def name(self) -> str:
        """What reports call the model: "file.function"."""
        return f"{self.file.stem}.{self.function}"


def address(name: str) -> Address | None:
    """The file and function in "path/file.py:function", or None if it is none such."""
    # From the right: a Windows path has a colon of its own.
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        return Address(Path(file).expanduser(), function)
    return Address(Path(name).expanduser(), "") if name.endswith(".py") else None


def found(where: Address) -> tuple[Callable[..., object], str]:
    """The function itself, and the SHA-256 of its file and of the neighbours that the file imports.

    Raises:
        UserError: the file cannot be imported or has no such function.
    """
    module, code = _imported(where.file)
    function = getattr(module, where.function, None)
    if callable(function):
        return function, code
    own = [key for key, value in vars(module).items() if callable(value) and value.__module__ == module.__name__]
    names = ", ".join(sorted(own)) or "none"
    raise UserError(
        f"{where.file} has no function {where.function!r}; pass {where.file}:NAME, with NAME one of: {names}."
    )


def _imported(file: Path) -> tuple[ModuleType, str]:
    if not file.is_file():
        raise UserError(f"There is no file {file}; check the path of the model.")
    folder = file.resolve().parent
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"robustkit_user_{file.stem}_{digest}", file.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by name; the file may import its neighbours.
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(folder))
    before = set(sys.modules)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module.__name__]
        raise UserError(f"{file} cannot be imported: {told(error)}.") from error
    finally:
        sys.path.remove(str(folder))
        neighbours = _forget(set(sys.modules) - before - {module.__name__}, folder)
    code = hashlib.sha256()
    for path in (file, *sorted(neighbours)):
        code.update(path.read_bytes())
    return module, code.hexdigest()


def _forget(names: set[str], folder: Path) -> set[Path]:
    """Take the file's neighbours out of Python's list of modules: another model may have neighbours of those names."""
    files = set()
    for name in names:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin is not None and Path(origin).resolve().is_relative_to(folder):
            files.add(Path(origin).resolve())
            del sys.modules[name]
    return files


def told(error: Exception) -> str:
    """The kind and the text of an error, without a full stop."""
    return f"{type(error).__name__}: {error}".rstrip(".")
