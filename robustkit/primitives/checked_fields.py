"""Checks of hyper-parameters: what is no number of its range is refused in one sentence that names it."""

import inspect
import re
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

from robustkit import limits
from robustkit.errors import UserError

_CLASS_VARIABLE = re.compile(r"(\w+\.)*ClassVar\b")
_DECLARED: set[type[Any]] = set()  # classes whose declarations were checked
_MOST = 2.0**31  # hyper-parameters enter int64 arithmetic; no attack needs more


class CheckedFields:
    """Base of frozen dataclasses of hyper-parameters; a subclass checks its own in `__post_init__`."""

    def require_declared(self) -> None:
        """Refuse a class that sets hyper-parameters which its instances do not get, as Python says nothing of it."""
        kind = type(self)
        if kind not in _DECLARED:
            _check_declared(kind)
            _DECLARED.add(kind)

    def at_least(self, least: float, *names: str) -> None:
        """Refuse hyper-parameters that are not numbers of at least `least`; whole numbers if `least` is an int."""
        for name in names:
            value = getattr(self, name)
            kind_of = Integral if isinstance(least, int) else Real
            if isinstance(value, bool) or not isinstance(value, kind_of) or not least <= _exact(value):
                kind = "a whole number" if isinstance(least, int) else "a number"
                raise UserError(
                    f"{type(self).__name__}: {name} must be {kind} of at least {least}, not {limits.shown(value)}."
                )
            if isinstance(value, Integral):
                limits.require_at_most(f"{type(self).__name__}: {name}", int(value), limits.COUNT)
            elif not value < _MOST:
                raise UserError(f"{type(self).__name__}: {name} must be below 2^31, not {limits.shown(value)}.")

    def at_least_or_none(self, least: float, name: str) -> None:
        """The same for one hyper-parameter that may be None."""
        if getattr(self, name) is not None:
            self.at_least(least, name)

    def positive(self, *names: str) -> None:
        """Refuse hyper-parameters that are not numbers above 0: with 0 the attack would do nothing."""
        self.at_least(0.0, *names)
        for name in names:
            if getattr(self, name) == 0:
                raise UserError(f"{type(self).__name__}: {name} must be above 0; with 0 the attack does nothing.")

    def share(self, name: str) -> None:
        """Refuse a hyper-parameter that is no number from 0 to 1."""
        self.at_least(0.0, name)
        if getattr(self, name) > 1:
            raise UserError(f"{type(self).__name__}: {name} is a share, so at most 1, not {getattr(self, name)}.")


def _exact(value: Real) -> int | float:
    # A float holds no integer of 400 digits.
    return int(value) if isinstance(value, Integral) else float(value)


def _check_declared(kind: type[CheckedFields]) -> None:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for each in kind.__mro__[: kind.__mro__.index(CheckedFields)]:
        own, annotated = vars(each), _annotated(each)
        is_dataclass = "__dataclass_fields__" in own
        if "__init__" in own and not is_dataclass and issubclass(each, CheckedFields):
            raise UserError(
                f"{each.__name__} has an __init__ of its own, which copies with another radius do not pass; declare "
                "hyper-parameters as fields under @dataclass(frozen=True)."
            )
        lost = [name for name in own if name in names and name not in annotated]
        lost += [] if is_dataclass else annotated
        if lost:
            raise UserError(
                f"{each.__name__} sets {lost[0]}, which its objects do not get; write @dataclass(frozen=True) above "
                f"the class and {lost[0]}: TYPE = VALUE in it."
            )


def _annotated(kind: type[Any]) -> list[str]:
    """The names that a class itself annotates, but for class variables."""
    found = inspect.get_annotations(kind)
    return [name for name, value in found.items() if not _CLASS_VARIABLE.match(str(value))]
