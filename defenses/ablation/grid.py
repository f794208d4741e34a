"""Axes of recipe choices, and the cells of an ablation's design in their order."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal

from robustkit import limits
from robustkit.errors import UserError, unknown
from robustkit.limits import shown
from robustkit.primitives.registry import value_of

from ..training.recipe import Recipe

Design = Literal["main-effects", "full"]
DESIGNS: tuple[Design, ...] = ("main-effects", "full")
BASELINE = "baseline"

_SET_BY_ABLATION = ("seed",)


@dataclass(frozen=True)
class Axis:
    """Choices that change together, such as `bn+lr`; the first level is that of the baseline."""

    keys: tuple[str, ...]
    levels: tuple[tuple[object, ...], ...]

    @property
    def name(self) -> str:
        """The choices, joined by `+`."""
        return "+".join(self.keys)

    def spelled(self, level: int) -> str:
        """A level as text, its values joined by `+`."""
        return "+".join(_text(value) for value in self.levels[level])


@dataclass(frozen=True)
class Cell:
    """One level of each axis."""

    axes: tuple[Axis, ...]
    levels: tuple[int, ...]

    @property
    def changed(self) -> tuple[int, ...]:
        """Numbers of the axes that differ from the baseline."""
        return tuple(number for number, level in enumerate(self.levels) if level)

    @property
    def name(self) -> str:
        """The changes from the baseline."""
        changes = [f"{self.axes[number].name}={self.spelled(number)}" for number in self.changed]
        return ", ".join(changes) or BASELINE

    def spelled(self, axis: int) -> str:
        """The level of an axis as text."""
        return self.axes[axis].spelled(self.levels[axis])

    def recipe(self, base: Recipe) -> Recipe:
        """The base recipe with this cell's choices.

        Raises:
            UserError: a choice is out of range, or two cannot be combined.
        """
        changes = {key: value for axis, level in zip(self.axes, self.levels, strict=True)
                   for key, value in zip(axis.keys, axis.levels[level], strict=True)}  # fmt: skip
        try:
            return base.but(**changes)
        except UserError as error:
            raise UserError(f"In the cell {self.name}: {error}") from None


def axes_of(grid: Mapping[str, Sequence[object]]) -> tuple[Axis, ...]:
    """The axes of a grid, checked.

    Args:
        grid: choices of the recipe with their values; of choices joined by "+" each value is a tuple.

    Raises:
        UserError: a choice is unknown or occurs twice, or an axis has fewer than two different values.
    """
    axes, seen = [], set[str]()
    for name, values in grid.items():
        keys = tuple(part.strip().replace("-", "_") for part in name.split("+"))
        for key in keys:
            if key in _SET_BY_ABLATION:
                raise UserError(f"The {key} is no axis: every cell is trained with several; give seeds=, or --seeds.")
            if key not in Recipe.__dataclass_fields__:
                raise unknown("choice of the recipe", key, set(Recipe.__dataclass_fields__) - set(_SET_BY_ABLATION))
            if key in seen:
                raise UserError(f"The grid varies {key} twice; put all its values in one axis.")
            seen.add(key)
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise UserError(f"The axis {name} needs a list of values, the baseline's first, not {shown(values)}.")
        levels = tuple((value,) if len(keys) == 1 else _joined(name, value, len(keys)) for value in values)
        axis = Axis(keys, levels)
        # Compared as texts: they are the names of cells and files.
        if len(levels) < 2 or len({axis.spelled(level) for level in range(len(levels))}) < len(levels):
            raise UserError(f"The axis {name} needs at least two values, all different; the first is the baseline's.")
        axes.append(axis)
    if not axes:
        raise UserError("The grid is empty; give at least one axis, such as freeze=none,prefix:layer1.")
    return tuple(axes)


def cells_of(axes: Sequence[Axis], design: str) -> list[Cell]:
    """The cells of a design: the baseline, then those with one change, then, in a full design, those with more.

    Raises:
        UserError: there is no such design, or it has too many cells.
    """
    if design not in DESIGNS:
        raise unknown("design", design, DESIGNS)
    sizes = [len(axis.levels) for axis in axes]
    count = math.prod(sizes) if design == "full" else 1 + sum(sizes) - len(sizes)
    limits.require_at_most("The number of cells of the grid", count, limits.TRAININGS)
    most = 1 if design == "main-effects" else len(axes)
    return [cell for changes in range(most + 1) for cell in _with_changes(tuple(axes), changes)]


def read_grid(texts: Iterable[str]) -> dict[str, list[object]]:
    r"""A grid from texts such as "freeze=none,prefix:layer1" or "bn+lr=batch+0.05,frozen+0.01".

    Values are separated by commas; `\,` is a comma within a value. The key ends at the first `=`. Values of several
    texts with the same key are appended.

    Raises:
        UserError: a text has no key, or an empty value.
    """
    grid: dict[str, list[object]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise UserError(f"{text!r} is not an axis of a grid; write for example freeze=none,prefix:layer1.")
        keys = name.split("+")
        for part in _parts(rest):
            values = [part] if len(keys) == 1 else part.split("+")
            if not all(values) or len(values) != len(keys):
                raise UserError(f"In {text!r}, {part!r} is not a value for {name}; write one value for each choice.")
            typed = [_value(key, value) for key, value in zip(keys, values, strict=True)]
            grid.setdefault(name, []).append(typed[0] if len(keys) == 1 else tuple(typed))
    return grid


def _with_changes(axes: tuple[Axis, ...], changes: int) -> Iterator[Cell]:
    for varied in combinations(range(len(axes)), changes):
        for levels in product(*(range(1, len(axes[number].levels)) for number in varied)):
            chosen = dict(zip(varied, levels, strict=True))
            yield Cell(axes, tuple(chosen.get(number, 0) for number in range(len(axes))))


def _joined(name: str, value: object, count: int) -> tuple[object, ...]:
    if not isinstance(value, tuple) or len(value) != count:
        raise UserError(f"The axis {name} joins {count} choices, so each of its values must be a tuple of {count}.")
    return value


def _parts(text: str) -> list[str]:
    parts = [""]
    letters = iter(text)
    for letter in letters:
        if letter == ",":
            parts.append("")
        elif letter == "\\":
            following = next(letters, "")
            # A backslash before any other character is part of the value, as in paths and globs.
            parts[-1] += following if following == "," else letter + following
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _value(key: str, text: str) -> object:
    """The value with the type of the recipe's field: a text field keeps its text, even "none"."""
    field = Recipe.__dataclass_fields__.get(key.strip())
    return text if field is None or isinstance(field.default, str) else value_of(text)


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
