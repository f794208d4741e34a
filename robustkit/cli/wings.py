"""The wings as the commands import them: `from .wings import reports`, inside a function.

Type checkers know the wings only by their folders' names, and at run time they are sub-packages of robustkit. Here
each gets the name that it needs, so that calls into a wing are checked. They load on first use.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import defenses as defenses
    import reports as reports

_WINGS = ("defenses", "reports")


def __getattr__(name: str) -> ModuleType:
    if name in _WINGS:
        return import_module(f"robustkit.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
