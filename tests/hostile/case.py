"""One hostile case: a command line, what lies in its folder, and which ends are right."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Prepare = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """A command that must end with one of `statuses`, one line of error, and nothing changed beside its output."""

    words: tuple[str, ...]
    prepare: Prepare | None = None  # gets the folder of the case, which already has the small model and data
    statuses: frozenset[int] = frozenset({0, 2})
    says: tuple[str, ...] = ()  # what the output contains
    env: Mapping[str, str] = field(default_factory=dict)
    stdout: Literal["file", "closed pipe", "full", "none"] = "file"
    may_change: tuple[str, ...] = ()  # names of files that the command is asked to write or to delete


def refused(*words: str, says: tuple[str, ...] = (), prepare: Prepare | None = None, **more: object) -> Case:
    """A case that must end with status 2."""
    return Case(tuple(words), prepare, frozenset({2}), says, **more)  # type: ignore[arg-type]


def accepted(*words: str, says: tuple[str, ...] = (), prepare: Prepare | None = None, **more: object) -> Case:
    """A case that must end with status 0."""
    return Case(tuple(words), prepare, frozenset({0}), says, **more)  # type: ignore[arg-type]
