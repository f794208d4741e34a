"""What a user can correct: one class of error, whose text is one sentence that names the fix."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something the caller can correct. The command line prints its text alone and exits with status 2."""


class NoInputGradientError(UserError):
    """Autograd sees no path from the model's logits to its input."""


class NoSplitError(UserError):
    """A data set has no split of that name."""


class UntrainedError(UserError):
    """A model would have to be trained first, where nothing may be trained."""


def unknown(kind: str, name: str, names: Iterable[str]) -> UserError:
    """The error for a `name` that is none of `names`, with the nearest ones first."""
    return UserError(f"There is no {kind} called {name!r}; {nearest(name, names)}")


def nearest(name: str, names: Iterable[str], most: int = 3) -> str:
    """The end of a sentence about a `name` that is none of `names`: the nearest ones, or all if none is near."""
    known = sorted(names)
    near = difflib.get_close_matches(name.lower(), known, n=most, cutoff=0.5)
    near.sort(key=lambda each: sorted(each) != sorted(name.lower()))  # the same letters in another order come first
    several = f"{', '.join(known[:12])}, ..." if len(known) > 12 else f"{', '.join(known)}."
    return f"did you mean {' or '.join(near)}?" if near else f"there are {several}"
