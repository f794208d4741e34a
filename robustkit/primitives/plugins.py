"""Attacks of other distributions: entry points of the group `robustkit.attacks`.

    [project.entry-points."robustkit.attacks"]
    myattack = "mypackage.myattack:MyAttack"

An entry point is loaded when its name is asked for and not before, so a broken one breaks no other command.
"""

import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from robustkit.errors import UserError
from robustkit.host.failures import blame, described_error
from robustkit.host.text import printable

GROUP = "robustkit.attacks"

_LOADED: dict[type[Any], "Plugin"] = {}


class Plugin(NamedTuple):
    """One entry point, not loaded."""

    name: str
    distribution: str  # such as "mypackage 1.2"
    entry: EntryPoint


def plugins() -> dict[str, list[Plugin]]:
    """All entry points of the group by their names in lower case; several of one name clash."""
    found: dict[str, list[Plugin]] = {}
    for entry in entry_points(group=GROUP):
        name = printable(entry.name.strip().lower())
        distribution = printable(f"{entry.dist.name} {entry.dist.version}") if entry.dist else "an unknown distribution"
        found.setdefault(name, []).append(Plugin(name, distribution, entry))
    return dict(sorted(found.items()))


def plugin_class(name: str, base: type[Any]) -> type[Any] | None:
    """The class that an entry point names; None if there is no such entry point.

    Raises:
        UserError: several have this name, it cannot be loaded, or it is no complete class derived from `base`.
    """
    same = plugins().get(name, [])
    if not same:
        return None
    if len(same) > 1:
        both = " and ".join(plugin.distribution for plugin in same)
        raise UserError(f"{both} both have an attack called {name}; uninstall one, or give path/file.py:Class.")
    kind = _loaded(same[0])
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise UserError(
            f"The attack {name} of {same[0].distribution} is not derived from {base.__module__}.{base.__name__}."
        )
    if inspect.isabstract(kind):
        left = ", ".join(sorted(getattr(kind, "__abstractmethods__", ())))
        raise UserError(f"The attack {name} of {same[0].distribution} is not complete; it must define {left}.")
    _LOADED[kind] = same[0]
    blame(kind.__module__.partition(".")[0])
    return kind


def plugin_of(kind: type[Any]) -> Plugin | None:
    """The entry point by which a class was loaded, if it was."""
    return _LOADED.get(kind)


def _loaded(plugin: Plugin) -> Any:
    try:
        return plugin.entry.load()
    except BaseException as error:  # a module may also call exit()
        if isinstance(error, KeyboardInterrupt):
            raise
        raise UserError(
            f"The attack {plugin.name} of {plugin.distribution} cannot be loaded: {described_error(error)}; update or "
            "uninstall that distribution."
        ) from error
