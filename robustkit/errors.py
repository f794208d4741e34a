"""What a user can mend: one class of error, whose text is one sentence that names the fix."""

import difflib
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

_MOST_NEIGHBOURS = 10_000  # entries of a folder among which a misspelt one is looked for


class UserError(ValueError):
    """Something the caller can mend. The command line prints its text alone and exits with status 2."""


class UntrainedError(UserError):
    """A model would have to be trained first, where nothing may be trained."""


def unknown(kind: str, name: str, names: Iterable[str]) -> UserError:
    """The error for a `name` that is none of `names`, with the nearest ones first."""
    known = sorted(names)
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    several = f"{', '.join(known[:12])}, ..." if len(known) > 12 else f"{', '.join(known)}."
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {several}"
    return UserError(f"There is no {kind} called {name!r}; {hint}")


def no_file(text: str, path: Path, fix: str) -> UserError:
    """The error for a missing file: `text`, then the entries of its folder that are spelt like it, else the fix."""
    near = " or ".join(neighbours(path))
    return UserError(f"{text}; did you mean {near}?" if near else f"{text}; {fix}.")


def neighbours(path: Path) -> list[str]:
    """Up to three entries of the folder of `path` whose names are almost its own."""
    names: list[str] = []
    with suppress(OSError, ValueError):
        names = [entry.name for entry in islice(path.parent.iterdir(), _MOST_NEIGHBOURS)]
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.75)
    return [str(path.with_name(name)) for name in near]
