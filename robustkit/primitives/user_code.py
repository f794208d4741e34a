"""Python files of the user: `path/file.py:NAME` names a function or a class in one."""

import ast
import contextlib
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple, cast

from robustkit.errors import UserError
from robustkit.host.failures import described_error
from robustkit.host.text import encodable
from robustkit.limits import shortened
from robustkit.paths import no_file, user_path

# `path/file.py:NAME(...)`: the file ends at the first ".py:" that a call follows, because a value may be a path too.
_CALL = re.compile(r"(?P<file>.+?\.py):(?P<call>[^\W\d]\w*\(.*\))", re.DOTALL)

_OUTSIDE = "no known parent package"  # in Python's error about `from .x import y` in a file that is in no package
_PACKAGE_FIX = "add an empty file __init__.py to its folder, which makes the folder a package"
INSTALLED = {"site-packages", "dist-packages"}


class Address(NamedTuple):
    """The file, and the name of a function or class in it, perhaps with arguments: "make(width=8)"."""

    file: Path
    function: str

    @property
    def name(self) -> str:
        """The name in reports: "file.function"."""
        return encodable(f"{self.file.stem}.{self.function}")


class LoadedFunction(NamedTuple):
    """A function of the user's file, and the SHA-256 of the file and of the neighbouring files that it imports."""

    function: Callable[..., object]
    code: str


def address(name: str) -> Address | None:
    """The file and function in "path/file.py:function" or "...:function(width=8)"; None if `name` is neither."""
    called = _CALL.fullmatch(name)
    if called:
        return Address(user_path(called["file"]), called["call"])
    # Split at the last colon: a Windows path has a colon itself.
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        return Address(user_path(file), function)
    return Address(user_path(name), "") if name.endswith(".py") else None


def is_file(name: str) -> bool:
    """Whether a name stands for something in a Python file of the user."""
    return name.endswith(".py") or name.rpartition(":")[0].endswith(".py") or _CALL.fullmatch(name) is not None


def load_function(where: Address) -> LoadedFunction:
    """The function at an address.

    Raises:
        UserError: the file cannot be imported or has no such function.
    """
    module, code = import_file(where.file)
    return LoadedFunction(function_in(module, where), code)


def function_in(module: ModuleType, where: Address, instances: type | tuple[type, ...] = ()) -> Callable[..., object]:
    """The function or class of a module that an address names.

    Args:
        module: the imported file.
        where: its file and the name.
        instances: objects of these classes would do, too, and are listed with the functions.

    Raises:
        UserError: there is none; the sentence lists those that there are.
    """
    function = getattr(module, where.function, None)
    if callable(function):
        return cast(Callable[..., object], function)
    own = (
        key
        for key, value in vars(module).items()
        if (is_object(value, instances) and not key.startswith("_"))
        or (callable(value) and value.__module__ == module.__name__)
    )
    names = ", ".join(sorted(own)) or "none"
    kind = "function or object" if instances else "function"
    what = f"has no {kind} {where.function!r}" if where.function else f"is a file, and a {kind} of it is meant"
    raise UserError(f"{where.file} {what}; pass {where.file}:NAME, with NAME one of: {names}.")


def is_object(value: object, instances: type | tuple[type, ...]) -> bool:
    """Whether a value of a file is used as it is. Classes are called, even if a protocol takes them for instances."""
    return isinstance(value, instances) and not isinstance(value, type)


class ImportedFile(NamedTuple):
    """A user's file as a module, and the SHA-256 of the file and of the neighbouring files that it imports."""

    module: ModuleType
    code: str


def import_file(file: Path) -> ImportedFile:
    """Run a file as a module under a name of its own, with its folder on the path during the import.

    A file in a package of the user is a module of that package, so that it may say `from .blocks import Net`.

    Raises:
        UserError: there is no such file, or it fails.
    """
    if not file.is_file():
        raise no_file(f"There is no file {shortened(file)}", file, "check the path")
    package = _package_of(file.resolve())
    digest = hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:12]
    name = f"robustkit_user_{file.stem}_{digest}"
    # Relative imports go by the name in the specification; pickle finds no module whose package is not imported.
    loader = SourceFileLoader(name, str(file.resolve()))
    spec = importlib.util.spec_from_file_location(".".join([*package.names, name]), file.resolve(), loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__name__ = name
    # Dataclasses and pickle look modules up by name.
    sys.modules[name] = module
    try:
        with _neighbours_importable(file.resolve().parent, package) as neighbours:
            loader.exec_module(module)
    except BaseException as error:  # a file may also call exit()
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        fix = f"; {_PACKAGE_FIX}" if isinstance(error, ImportError) and _OUTSIDE in str(error) else ""
        raise UserError(f"{file} cannot be imported: {described_error(error)}{fix}.") from error
    return ImportedFile(module, _sha256((file, *sorted(neighbours))))


_MODULES: dict[Path, ImportedFile] = {}


def import_unchanged(file: Path) -> ModuleType:
    """The file as a module; imported again only after it or a neighbour that it imports was edited.

    Raises:
        UserError: there is no such file, or it fails.
    """
    if not file.is_file():
        raise UserError(f"There is no file {file}; check the path.")
    path = file.resolve()
    if path not in _MODULES or _MODULES[path].code != file_code(path):
        _MODULES[path] = ImportedFile(import_file(file).module, file_code(path))
    return _MODULES[path].module


def user_function(where: Address) -> Callable[..., object]:
    """The function at an address; its file is imported again only after it was edited.

    Raises:
        UserError: the file cannot be imported or has no such function.
    """
    return function_in(import_unchanged(where.file), where)


def file_code(file: Path) -> str:
    """SHA-256 of a Python file and of the files of its folder that it imports, directly or through one another."""
    files = {file}
    waiting = [file]
    while waiting:
        fresh = set(_imported_files(waiting.pop())) - files
        files |= fresh
        waiting += fresh
    return _sha256((file, *sorted(files - {file})))


def instructions(code: CodeType) -> str:
    """The compiled code of a function and of those within it, without names of files and numbers of lines."""
    return f"{code.co_code.hex()} {code.co_names} {[_constant(each) for each in code.co_consts]}"


def closure_of(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The values of the functions around it that a function reads, with their names; those that are there by now."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that has no value yet
            yield name, cell.cell_contents


def _constant(value: object) -> str:
    if isinstance(value, CodeType):
        return instructions(value)
    # The order of a set of strings differs from process to process.
    return f"frozenset({sorted(map(repr, value))})" if isinstance(value, frozenset) else repr(value)


class _Package(NamedTuple):
    """The packages that a file is in: the folder above the outermost one, and their names, outermost first.

    Without names the file is in none, and the folder is its own.
    """

    root: Path
    names: tuple[str, ...]

    def holds(self, module: str) -> bool:
        """Whether a module, by its name, is the outermost package or in it."""
        return module.partition(".")[0] in self.names[:1]


def _package_of(file: Path) -> _Package:
    """The user's package that a file is in; installed packages and robustkit itself are imported by their names."""
    folder, names = file.parent, list[str]()
    while (folder / "__init__.py").is_file() and folder.name and "." not in folder.name:
        names.insert(0, folder.name)
        folder = folder.parent
    if names[:1] == ["robustkit"] or INSTALLED & set(file.parts):
        return _Package(file.parent, ())
    return _Package(folder, tuple(names))


@contextlib.contextmanager
def _neighbours_importable(folder: Path, package: _Package) -> Iterator[set[Path]]:
    """Let a file import its neighbours; the set that this gives has the neighbours' files after the import.

    `sys.modules` keeps none of them: files of another folder may import neighbours of the same names.
    """
    # Another package of the same name may have been imported before.
    others = {name: sys.modules.pop(name) for name in [*sys.modules] if package.holds(name)}
    added = [*dict.fromkeys([str(folder), str(package.root)])]
    sys.path[:0] = added
    before = set(sys.modules)
    neighbours = set[Path]()
    try:
        yield neighbours
    finally:
        for each in added:
            with contextlib.suppress(ValueError):  # the file may have changed the path itself
                sys.path.remove(each)
        neighbours |= _remove_modules(set(sys.modules) - before, package.root)
        sys.modules.update(others)


def _remove_modules(names: set[str], folder: Path) -> set[Path]:
    """Remove from `sys.modules` those of some modules that are in a folder, and return their files.

    Libraries of an environment within the folder stay: not every library can be imported twice.
    """
    files = set()
    for name in names:
        origin = getattr(sys.modules[name], "__file__", None)
        path = None if origin is None else Path(origin).resolve()
        if path is None or not path.is_relative_to(folder) or name.startswith("robustkit."):
            continue
        if not INSTALLED & set(path.relative_to(folder).parts):
            files.add(path)
            del sys.modules[name]
    return files


def _imported_files(file: Path) -> Iterator[Path]:
    """The files beside `file`, in packages beside it, or in the package that it is in, that its imports name."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:  # a neighbour for another version of Python, which no import statement reached
        return
    package = _package_of(file)
    for node in ast.walk(tree):
        level = 0
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base, level = f"{node.module}." if node.module else "", node.level
            names = [f"{base}{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if level and package.names:  # from the outermost package on, whose __init__.py runs, too
                above = package.names[: max(len(package.names) - level + 1, 0)]
                yield from _files_named([*above, *name.split(".")], package.root)
                continue
            yield from _files_named(name.split("."), file.parent)
            if package.holds(name):
                yield from _files_named(name.split("."), package.root)


def _files_named(parts: list[str], folder: Path) -> Iterator[Path]:
    """The files that run when a module in a folder is imported, by the parts of its name."""
    for depth in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:depth])
        yield from (path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file())


def _sha256(files: Iterable[Path]) -> str:
    code = hashlib.sha256()
    for path in files:
        code.update(path.read_bytes())
    return code.hexdigest()
