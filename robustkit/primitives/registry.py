"""Attacks by name: `pgd` for the attack in the file pgd.py, `path/mine.py:MyAttack` for one of the user.

A specification is a name and hyper-parameters, `pgd:steps=10,loss=dlr`. This is the one place where attacks are
loaded by name.
"""

import inspect
import pkgutil
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from torch import nn

from robustkit.errors import UserError, unknown
from robustkit.host.failures import described_error
from robustkit.host.text import encodable
from robustkit.paths import user_path
from robustkit.primitives import ensembles
from robustkit.primitives.hyper_parameters import as_text, default_of, json_value, typed
from robustkit.primitives.hyper_parameters import parameters as parameters
from robustkit.primitives.hyper_parameters import value_of as value_of
from robustkit.primitives.protocol import Attack
from robustkit.primitives.user_code import (
    address,
    class_code,
    code_of,
    import_unchanged,
    user_function,
)

# Names of the literature for one attack with some hyper-parameters set.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "adam-pgd": ("adam_pgd", {}),
    "apgd-ce": ("apgd", {"loss": "log-odds"}),
    "apgd-dlr": ("apgd", {"loss": "dlr"}),
    "apgd-t": ("apgd", {"loss": "dlr", "targets": 9}),
    # The mean of the gradients of cross-entropy over the draws that a query of a randomized model takes.
    "eotpgd": ("pgd", {"loss": "ce"}),
    "fab-t": ("fab", {"targets": 9}),
    "fgm": ("fgsm", {}),
    "guided-square": ("guided_square", {}),
    "i-fgsm": ("bim", {}),
    "ifgsm": ("bim", {}),
    "multitargeted": ("pgd", {"loss": "margin", "targets": 9}),
    "odi-pgd": ("pgd", {"loss": "margin", "odi_steps": 2}),
    "sigma-zero": ("sigma_zero", {}),
    "qeba": ("hopskipjump", {"frequencies": 0.25}),
    "one-pixel": ("one_pixel", {}),
    "sign-opt": ("sign_opt", {}),
    "sparse-rs": ("sparse_rs", {}),
}

# `path/file.py`, then perhaps the class, then perhaps the hyper-parameters.
_FILE = re.compile(r"(?P<file>[^=,]*\.py)(:(?P<kind>[^:=,]*))?(:(?P<values>.*))?")


class Specification(NamedTuple):
    """The name of an attack and its hyper-parameters as texts, unchecked."""

    name: str
    values: dict[str, str]


@cache
def classes() -> dict[str, type[Attack]]:
    """Every attack of the package by its file's name."""
    package = import_module("robustkit.attacks")
    found = {}
    for name, module in modules_in(package.__path__).items():
        attacks = _attacks_in(import_module(module))
        if attacks:  # some files only help others
            found[name] = attacks.get(name.replace("_", "")) or _only(attacks, module)
    return found


def modules_in(folders: Iterable[str], package: str = "robustkit.attacks") -> dict[str, str]:
    """The modules of a package and of its sub-folders by their file's name, without those that begin with "_".

    Raises:
        UserError: two files of different sub-folders have one name.
    """
    modules: dict[str, str] = {}
    for module in pkgutil.walk_packages(folders, f"{package}."):
        name = module.name.rpartition(".")[2]
        if module.ispkg or name.startswith("_"):
            continue
        if name in modules:
            raise UserError(f"{modules[name]} and {module.name} have one name; rename one of the files.")
        modules[name] = module.name
    return modules


def names() -> list[str]:
    """All names of the package that a specification may begin with."""
    return sorted([*classes(), *VARIANTS])


def parsed(specification: str) -> Specification:
    """The name and the hyper-parameters of `NAME[:KEY=VALUE,...]` or `FILE.py[:CLASS][:KEY=VALUE,...]`.

    Raises:
        UserError: a hyper-parameter is malformed or given twice, or the file has no such attack.
    """
    name, _, rest = specification.partition(":")
    own = _FILE.fullmatch(specification.strip())
    if own:
        name, rest = name_of(_class_of(own)), own["values"] or ""
    values: dict[str, str] = {}
    for item in filter(None, rest.split(",")):
        word, equals, value = item.partition("=")
        key = word.strip().replace("-", "_")
        if not equals:
            raise UserError(f"In {specification!r}, {item!r} is no KEY=VALUE; write for example pgd:steps=10,loss=dlr.")
        if key in values:
            raise UserError(f"In {specification!r}, {key} is given twice; leave one out.")
        values[key] = value.strip()
    return Specification(name.strip().lower(), values)


def build(specification: str, norm: str, eps: float | str) -> Attack:
    """The attack of a specification in one threat model.

    Raises:
        UserError: the name or a hyper-parameter is unknown or out of range, or the attack is the user's own and cannot
            be loaded; the sentence names the fix.
    """
    name, values = parsed(specification)
    base, preset = VARIANTS.get(name, (name, {}))
    own = _FILE.fullmatch(specification.strip())
    if own is None and base not in classes():
        ensembles.check_current(name)
        raise unknown("attack", name, [*names(), *ensembles.names()])
    kind = classes()[base] if own is None else _class_of(own)
    known = parameters(kind)
    for key in values:
        if key not in known:
            raise unknown(f"hyper-parameter of {name}", key, known)
    given = {key: typed(text, known[key]) for key, text in values.items()}
    try:
        return kind(eps=eps, norm=norm, **{**preset, **given})
    except UserError:
        raise
    except Exception as error:
        if own is None:
            raise
        raise UserError(
            f"{kind.__name__} in {own['file']} cannot be built: {described_error(error)}; it must accept eps=, norm= "
            "and its hyper-parameters by name, as a dataclass derived from Attack does."
        ) from error


def title(specification: str) -> str:
    """The name of a specification in tables: itself, or "file.class" and the hyper-parameters for one of the user."""
    own = _FILE.fullmatch(specification.strip())
    name, values = parsed(specification)
    if any(address(value) for value in values.values()):  # a path is no name: it has slashes
        return ":".join((name, ",".join(f"{key}={as_text(value)}" for key, value in values.items())))
    if own is None:
        return specification.strip().lower()
    return ":".join(filter(None, (name, own["values"])))


def described(attack: Attack) -> dict[str, Any]:
    """All hyper-parameters of an attack but its threat model, and a hash of its code if it is the user's own."""
    own: dict[str, Any] = {}
    for key in parameters(type(attack)):
        own |= _described_value(key, getattr(attack, key))
    code = {} if _in_package(type(attack)) else {"code": class_code(type(attack))}
    return {"attack": type(attack).__name__, **own, **code}


def _described_value(key: str, value: object) -> dict[str, Any]:
    """A hyper-parameter as JSON, with a hash of its code if it is a function of the user."""
    where = address(value) if isinstance(value, str) else None
    if where is not None:
        return {key: where.name, f"{key}.code": code_of(user_function(where))}
    if callable(value) and not isinstance(value, nn.Module):
        return {key: json_value(value), f"{key}.code": code_of(value)}
    return {key: json_value(value)}


def spelled(attack: Attack) -> str:
    """The attack's name and its hyper-parameters that differ from their defaults.

    For an attack of the package with plain values it is the specification that builds it.
    """
    changed = [f"{key}={as_text(getattr(attack, key))}" for key, field in parameters(type(attack)).items()
               if json_value(getattr(attack, key)) != json_value(default_of(field))]  # fmt: skip
    return ":".join(filter(None, (name_of(type(attack)), ",".join(changed))))


def name_of(kind: type[Attack]) -> str:
    """The name of an attack: its file's in the package, "file.class" if loaded by path, else its class's."""
    for name, known in classes().items():
        if known is kind:
            return name
    name, module = kind.__name__.lower(), inspect.getmodule(kind)
    if kind.__module__.startswith("robustkit_user_") and module is not None:
        return encodable(f"{Path(str(module.__file__)).stem}.{name}".lower())
    taken = name in names() or ensembles.is_ensemble(name)
    return f"{kind.__module__.rpartition('.')[2]}.{name}".lower() if taken else name


def _class_of(own: "re.Match[str]") -> type[Attack]:
    """The attack that a specification of the form `FILE.py[:CLASS]...` names."""
    file, name = own["file"], own["kind"]
    module = import_unchanged(user_path(file))
    attacks = _attacks_in(module)
    if not name:
        return _only(attacks, file)
    kind = getattr(module, name, None)
    if not isinstance(kind, type):
        there = ", ".join(attack.__name__ for attack in attacks.values()) or "none"
        raise UserError(f"{file} has no class {name!r}; write {file}:NAME, with NAME one of: {there}.")
    if not issubclass(kind, Attack):
        raise UserError(f"{name} in {file} is no attack; derive it from robustkit.primitives.protocol.Attack.")
    if inspect.isabstract(kind):
        raise UserError(f"{name} in {file} is not complete; define {', '.join(sorted(kind.__abstractmethods__))}.")
    return kind


def _attacks_in(module: ModuleType) -> dict[str, type[Attack]]:
    """The complete attacks that a module defines, by their names in lower case."""
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    return {kind.__name__.lower(): kind for kind in own if issubclass(kind, Attack) and not inspect.isabstract(kind)}


def _only(attacks: Mapping[str, type[Attack]], where: str) -> type[Attack]:
    if len(attacks) == 1:
        return next(iter(attacks.values()))
    if not attacks:
        raise UserError(f"{where} has no complete attack; derive a class from robustkit.primitives.protocol.Attack.")
    there = ", ".join(kind.__name__ for kind in attacks.values())
    raise UserError(f"{where} has several attacks; write {where}:NAME, with NAME one of: {there}.")


def _in_package(kind: type[Attack]) -> bool:
    return kind.__module__.startswith("robustkit.")
