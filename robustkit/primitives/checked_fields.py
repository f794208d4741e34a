"""Checks of hyper-parameters: what is no number of its range is refused in one sentence that names it."""

from numbers import Integral, Real

from robustkit import limits
from robustkit.errors import UserError

_MOST = 2.0**31  # hyper-parameters enter int64 arithmetic; no attack needs more


class CheckedFields:
    """Base of frozen dataclasses of hyper-parameters; a subclass checks its own in `__post_init__`."""

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
