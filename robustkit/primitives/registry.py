"""Attacks by name: the file's name is the attack's name, on the command line too.

A specification is a name and hyper-parameters, `pgd:steps=10,loss=dlr`. This is the one place where attacks are
loaded by name.
"""

import pkgutil
from dataclasses import MISSING, Field, fields
from functools import cache
from importlib import import_module
from typing import Any, get_args

from robustkit.errors import UserError, unknown
from robustkit.primitives.protocol import Attack

# Names of the literature for one attack with some hyper-parameters set.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "apgd-ce": ("apgd", {"loss": "log-odds"}),
    "apgd-dlr": ("apgd", {"loss": "dlr"}),
    "apgd-t": ("apgd", {"loss": "dlr", "targets": 9}),
}

# Cascades: each member is run on the images that the members before it left. The budgets of `standard` were chosen on
# validation images, where a tenth of the passes of `thorough` leave the same images standing; see bench/README.md.
ENSEMBLES: dict[str, tuple[str, ...]] = {
    "standard": ("apgd-ce:steps=30", "apgd-t:steps=20,targets=3", "square:queries=100"),
    "thorough": ("apgd-ce:steps=100", "apgd-t:steps=100,targets=9", "square:queries=5000"),
}


@cache
def classes() -> dict[str, type[Attack]]:
    """Every attack by its file's name."""
    found = {}
    package = import_module("robustkit.attacks")
    for module in pkgutil.walk_packages(package.__path__, "robustkit.attacks."):
        name = module.name.rpartition(".")[2]
        if module.ispkg or name.startswith("_"):
            continue
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Attack) and value.__module__ == module.name:
                found[name] = value
    return found


def names() -> list[str]:
    """All names a specification may begin with."""
    return sorted([*classes(), *VARIANTS])


def parsed(specification: str) -> tuple[str, dict[str, str]]:
    """The name and the hyper-parameters of `NAME[:KEY=VALUE,...]`, as texts and unchecked."""
    name, _, rest = specification.partition(":")
    values = {}
    for item in filter(None, rest.split(",")):
        word, equals, value = item.partition("=")
        key = word.strip().replace("-", "_")
        if not equals:
            raise UserError(f"In {specification!r}, {item!r} is no KEY=VALUE; write for example pgd:steps=10,loss=dlr.")
        if key in values:
            raise UserError(f"In {specification!r}, {key} is given twice; leave one out.")
        values[key] = value.strip()
    return name.strip().lower(), values


def build(specification: str, norm: str, eps: float | str) -> Attack:
    """The attack of a specification in one threat model.

    Raises:
        UserError: the name or a hyper-parameter is unknown or out of range; the sentence has the nearest names.
    """
    name, values = parsed(specification)
    base, preset = VARIANTS.get(name, (name, {}))
    if base not in classes():
        raise unknown("attack", name, [*names(), *ENSEMBLES])
    known = parameters(classes()[base])
    for key in values:
        if key not in known:
            raise unknown(f"hyper-parameter of {name}", key, known)
    own = {key: _typed(text, known[key]) for key, text in values.items()}
    return classes()[base](eps=eps, norm=norm, **{**preset, **own})


def described(attack: Attack) -> dict[str, Any]:
    """All hyper-parameters of an attack but its threat model, for the manifest."""
    own = {key: getattr(attack, key) for key in parameters(type(attack))}
    return {"attack": type(attack).__name__, **own}


def spelled(attack: Attack) -> str:
    """The specification that builds an attack object again in another threat model."""
    name = next((name for name, known in classes().items() if known is type(attack)), None)
    if name is None:
        raise UserError(
            f"evaluate() knows attacks by the name of their file in attacks/, and {type(attack).__name__} has none; "
            "use robustkit.attack(model, x, y, attack) for an attack of your own."
        )
    changed = [f"{key}={getattr(attack, key)}" for key, field in parameters(type(attack)).items()
               if getattr(attack, key) != field.default]  # fmt: skip
    return f"{name}:{','.join(changed)}" if changed else name


def parameters(attack: type[Attack]) -> dict[str, "Field[Any]"]:
    """The hyper-parameters of an attack but its threat model."""
    return {
        field.name: field
        for field in fields(attack)
        if field.init and field.name not in ("eps", "norm") and field.default is not MISSING
    }


def _typed(text: str, field: "Field[Any]") -> Any:
    """A text as its field wants it: names of layers may look like numbers, and stay names."""
    if str in (field.type, *get_args(field.type)):
        return None if text.lower() == "none" and field.default is None else text
    return value_of(text)


def value_of(text: str) -> Any:
    """What a text stands for: a truth value, none, a number, or itself."""
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
