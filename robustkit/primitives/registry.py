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
from robustkit.primitives.other_names import unknown_attack
from robustkit.primitives.plugins import plugin_class, plugin_of, plugins
from robustkit.primitives.protocol import Attack, in_package
from robustkit.primitives.reachable_code import class_code, code_of
from robustkit.primitives.universal import UniversalAttack
from robustkit.primitives.user_code import address, import_unchanged, user_function

# Names of the literature for one attack with some hyper-parameters set.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "adam-pgd": ("adam_pgd", {}),
    "apgd-ce": ("apgd", {"loss": "log-odds"}),
    "apgd-dlr": ("apgd", {"loss": "dlr"}),
    "apgd-t": ("apgd", {"loss": "dlr", "targets": 9}),
    "brendel-bethge": ("brendel_bethge", {}),
    # The mean of the gradients of cross-entropy over the draws that a query of a randomized model takes.
    "eotpgd": ("pgd", {"loss": "ce"}),
    "fab-t": ("fab", {"targets": 9}),
    "fgm": ("fgsm", {}),
    "frank-wolfe": ("frank_wolfe", {}),
    "fw": ("frank_wolfe", {}),
    "guided-square": ("guided_square", {}),
    "i-fgsm": ("bim", {}),
    "ifgsm": ("bim", {}),
    "multitargeted": ("pgd", {"loss": "margin", "targets": 9}),
    "odi-pgd": ("pgd", {"loss": "margin", "odi_steps": 2}),
    "sigma-zero": ("sigma_zero", {}),
    "qeba": ("hopskipjump", {"frequencies": 0.25}),
    "one-pixel": ("one_pixel", {}),
    "raced-apgd": ("raced_apgd", {}),
    "sign-opt": ("sign_opt", {}),
    "soft-apgd": ("soft_apgd", {}),
    "sparse-rs": ("sparse_rs", {}),
}

_THREAT = ("eps", "norm", "mask")

# `path/file.py`, then perhaps the class, then perhaps the hyper-parameters.
_FILE = re.compile(r"(?P<file>[^=,]*\.py)(:(?P<kind>[^:=,]*))?(:(?P<values>.*))?")


class Specification(NamedTuple):
    """The name of an attack and its hyper-parameters as texts, unchecked."""

    name: str
    values: dict[str, str]


@cache
def classes() -> dict[str, type[Attack]]:
    """Every attack of the package by its file's name."""
    return _classes_of(Attack)


@cache
def universal_classes() -> dict[str, type[UniversalAttack]]:
    """Every universal attack of the package by its file's name: those that fit one perturbation to many images."""
    return _classes_of(UniversalAttack)


def _classes_of(base: type[Any]) -> dict[str, type[Any]]:
    package = import_module("robustkit.attacks")
    found = {}
    for name, module in modules_in(package.__path__).items():
        attacks = _attacks_in(import_module(module), base)
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


def parsed(specification: str, base: type[Any] = Attack) -> Specification:
    """The name and the hyper-parameters of `NAME[:KEY=VALUE,...]` or `FILE.py[:CLASS][:KEY=VALUE,...]`.

    Raises:
        UserError: a hyper-parameter is malformed or given twice, or the file has no such attack.
    """
    name, _, rest = specification.partition(":")
    own = _FILE.fullmatch(specification.strip())
    if own:
        name, rest = name_of(_class_of(own, base)), own["values"] or ""
    values: dict[str, str] = {}
    for item in filter(None, rest.split(",")):
        word, equals, value = item.partition("=")
        key = word.strip().replace("-", "_")
        if not equals:
            raise UserError(
                f"In {specification!r}, {item!r} is not KEY=VALUE; write for example pgd:steps=10,loss=dlr."
            )
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
    kind = _named_class(base) if own is None else _class_of(own, Attack)
    given = _checked_values(kind, name, values)
    try:
        return kind(eps=eps, norm=norm, **{**preset, **given})
    except UserError:
        raise
    except Exception as error:
        if own is None and in_package(kind):
            raise
        place = f"in {own['file']}" if own is not None else f"of {kind.__module__}"
        raise UserError(
            f"{kind.__name__} {place} cannot be built: {described_error(error)}; it must accept eps=, norm= "
            "and its hyper-parameters by name, as a dataclass derived from Attack does."
        ) from error


def _named_class(name: str) -> type[Attack]:
    """The attack of the package, or of another distribution, that has this name."""
    if name in classes():
        return classes()[name]
    ensembles.check_current(name)
    if ensembles.is_ensemble(name):
        raise UserError(
            f"{name} is an ensemble and not one attack; give one attack here, or to `robustkit evaluate` the name of "
            "the ensemble alone, without hyper-parameters."
        )
    if name in universal_classes():
        raise UserError(f"{name} fits one perturbation to many images; run it with `robustkit universal`.")
    kind = plugin_class(name, Attack)
    if kind is None:
        with_steps = [each for each in names() if "steps" in parameters(classes()[VARIANTS.get(each, (each,))[0]])]
        raise unknown_attack(name, [*names(), *ensembles.names(), *plugins()], with_steps)
    return kind


def build_universal(specification: str, norm: str, eps: float | str | None) -> UniversalAttack:
    """The universal attack of a specification; `eps` is None for one without a radius.

    Raises:
        UserError: as in `build`; or the attack needs a radius and has none, or the other way round.
    """
    kind = universal_kind(specification)
    name, values = parsed(specification, UniversalAttack)
    given = _checked_values(kind, name, values)
    if not kind.norms:
        if eps is not None:
            raise UserError(f"{name} has no radius, so eps={eps} says nothing; leave it out.")
        return kind(**given)
    if eps is None:
        raise UserError(f"The attack {specification!r} needs a radius; add eps=, for example eps='8/255'.")
    return kind(**{"eps": eps, "norm": norm, **given})


def universal_kind(specification: str) -> type[UniversalAttack]:
    """The class of the universal attack that a specification names.

    Raises:
        UserError: there is no such attack.
    """
    own = _FILE.fullmatch(specification.strip())
    if own is not None:
        kind: type[UniversalAttack] = _class_of(own, UniversalAttack)
        return kind
    name = parsed(specification).name
    if name in universal_classes():
        return universal_classes()[name]
    if name in names() or ensembles.is_ensemble(name):
        raise UserError(f"{name} attacks each image alone; run it with `robustkit evaluate` or `robustkit attack`.")
    raise unknown("universal attack", name, universal_classes())


def _checked_values(kind: type[Attack] | type[UniversalAttack], name: str, values: dict[str, str]) -> dict[str, Any]:
    """The hyper-parameters that texts stand for."""
    known = parameters(kind)
    for key in values:
        if key in _THREAT and key not in known:
            raise UserError(
                f"{key} of {name} is the threat model's, no hyper-parameter; give --{key}, or {key}= in Python."
            )
        if key not in known:
            raise unknown(f"hyper-parameter of {name}", key, known)
    return {key: typed(text, known[key]) for key, text in values.items()}


def title(specification: str) -> str:
    """The name of a specification in tables: itself, or "file.class" and the hyper-parameters for one of the user."""
    own = _FILE.fullmatch(specification.strip())
    name, values = parsed(specification)
    if any("/" in value or address(value) for value in values.values()):  # a slash divides an ensemble from its member
        return ":".join((name, ",".join(f"{key}={as_text(value_of(value))}" for key, value in values.items())))
    if own is None:
        return specification.strip().lower()
    return ":".join(filter(None, (name, own["values"])))


def described(attack: Attack | UniversalAttack) -> dict[str, Any]:
    """All hyper-parameters of an attack but its threat model, and a hash of its code if it is the user's own."""
    own: dict[str, Any] = {}
    for key in parameters(type(attack)):
        # Named only where it differs, so that runs from before there was any bisection can go on.
        if key != "radii" or getattr(attack, key) != Attack.radii:
            own |= _described_value(key, getattr(attack, key))
    code = {} if in_package(type(attack)) else {"code": class_code(type(attack))}
    plugin = plugin_of(type(attack))
    code |= {} if plugin is None else {"distribution": plugin.distribution}
    return {"attack": type(attack).__name__, **own, **code}


def has_own_code(attack: Attack) -> bool:
    """Whether the attack, or a function that it was given, is not robustkit's."""
    values = [getattr(attack, key) for key in parameters(type(attack))]
    given = any(callable(each) or (isinstance(each, str) and address(each) is not None) for each in values)
    return given or not in_package(type(attack))


def _described_value(key: str, value: object) -> dict[str, Any]:
    """A hyper-parameter as JSON, with a hash of its code if it is a function of the user."""
    where = address(value) if isinstance(value, str) else None
    if where is not None:
        return {key: where.name, f"{key}.code": code_of(user_function(where))}
    if callable(value) and not isinstance(value, nn.Module):
        return {key: json_value(value), f"{key}.code": code_of(value)}
    return {key: json_value(value)}


def spelled(attack: Attack | UniversalAttack) -> str:
    """The attack's name and its hyper-parameters that differ from their defaults.

    For an attack of the package with plain values it is the specification that builds it.
    """
    changed = [f"{key}={as_text(getattr(attack, key))}" for key, field in parameters(type(attack)).items()
               if json_value(getattr(attack, key)) != json_value(default_of(field))]  # fmt: skip
    return ":".join(filter(None, (name_of(type(attack)), ",".join(changed))))


def name_of(kind: type[Attack] | type[UniversalAttack]) -> str:
    """The name of an attack: its file's in the package, "file.class" if loaded by path, else its class's."""
    for name, known in {**classes(), **universal_classes()}.items():
        if known is kind:
            return name
    plugin = plugin_of(kind)
    if plugin is not None:
        return plugin.name
    name, module = kind.__name__.lower(), inspect.getmodule(kind)
    if kind.__module__.startswith("robustkit_user_") and module is not None:
        return encodable(f"{Path(str(module.__file__)).stem}.{name}".lower())
    taken = name in names() or ensembles.is_ensemble(name)
    return f"{kind.__module__.rpartition('.')[2]}.{name}".lower() if taken else name


def _class_of(own: "re.Match[str]", base: type[Any]) -> type[Any]:
    """The attack that a specification of the form `FILE.py[:CLASS]...` names."""
    file, name = own["file"], own["kind"]
    module = import_unchanged(user_path(file))
    attacks = _attacks_in(module, base)
    if not name:
        return _only(attacks, file)
    kind = getattr(module, name, None)
    if not isinstance(kind, type):
        there = ", ".join(attack.__name__ for attack in attacks.values()) or "none"
        raise UserError(f"{file} has no class {name!r}; write {file}:NAME, with NAME one of: {there}.")
    if not issubclass(kind, base):
        raise UserError(f"{name} in {file} is not an attack; derive it from {base.__module__}.{base.__name__}.")
    if inspect.isabstract(kind):
        left = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
        raise UserError(f"{name} in {file} is not complete; define {left}.")
    return kind


def _attacks_in(module: ModuleType, base: type[Any]) -> dict[str, type[Any]]:
    """The complete attacks that a module defines, by their names in lower case."""
    own = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__]
    return {kind.__name__.lower(): kind for kind in own if issubclass(kind, base) and not inspect.isabstract(kind)}


def _only(attacks: Mapping[str, type[Any]], where: str) -> type[Any]:
    if len(attacks) == 1:
        return next(iter(attacks.values()))
    if not attacks:
        raise UserError(f"{where} has no complete attack; derive a class from robustkit.primitives.protocol.Attack.")
    there = ", ".join(kind.__name__ for kind in attacks.values())
    raise UserError(f"{where} has several attacks; write {where}:NAME, with NAME one of: {there}.")
