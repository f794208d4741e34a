"""What the values of a row may be: the file may come from anywhere, and SQLite stores any type in any column."""

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from robustkit.evidence.opening import not_ours
from robustkit.evidence.rows import (
    TABLE_OF,
    AttackRecord,
    ConfidenceRecord,
    DrawRecord,
    FailedRecord,
    NearnessRecord,
    QueryRecord,
    R,
)


def check_values(
    kind: type[Any], rows: Sequence[Sequence[Any]], folder: Path | None, names: Sequence[str] | None = None
) -> None:
    """Check the type of each value.

    Args:
        kind: of the rows.
        rows: their first values, or those of `names`.
        folder: of the run.
        names: None takes the first fields, in their order.

    Raises:
        UserError: a value has another type, or is a whole number below -1 or from 2**53 on.
    """
    types = {field.name: field.type for field in fields(kind)}
    # Column by column: a large run has ten million values.
    for name, values in zip(names or types, zip(*rows, strict=True), strict=False):
        if not _all_valid(types[name], values):
            wrong = next(value for value in values if not _VALID[types[name]](value))
            raise not_ours(folder, f"{TABLE_OF[kind]}.{name} is {str(wrong)[:40]!r}")


def check_meaning(kind: type[R], records: Sequence[R], folder: Path | None) -> None:
    """Check what the types do not say.

    Raises:
        UserError: a record cannot be one of ours.
    """
    if kind in _MEANING:
        possible, otherwise = _MEANING[kind]
        if not all(map(possible, records)):
            raise not_ours(folder, otherwise)


def _all_valid(expected: Any, values: Sequence[Any]) -> bool:
    """Whether all values of a column are valid; as `_VALID` says it of one."""
    kinds = set(map(type, values))
    if expected is int:
        return kinds <= {int} and min(values, default=0) >= -1 and max(values, default=0) < 1 << 53
    allowed: dict[Any, set[type]] = {float: {float, int, type(None)}, str: {str}, bytes: {bytes}}
    return kinds <= allowed[expected]


def _fails(row: FailedRecord) -> bool:
    return min(row.sample, row.label, row.tries - 1) >= 0 and _REASON.fullmatch(row.reason) is not None


def _has_draws(row: DrawRecord) -> bool:
    right = row.selection, row.estimation
    return 0 <= min(right) <= max(right) <= row.draws and row.draws >= 1


def _is_confident(row: ConfidenceRecord) -> bool:
    return row.probability is not None and 0 <= row.probability <= 1


# By the type of a record's field. SQLite stores NaN as NULL.
_VALID: Final[dict[Any, Callable[[Any], bool]]] = {
    str: lambda value: isinstance(value, str),
    bytes: lambda value: isinstance(value, bytes),
    int: lambda value: isinstance(value, int) and -1 <= value < 1 << 53,
    float: lambda value: value is None or isinstance(value, (int, float)),
}
_REASON: Final = re.compile(
    r"SIG[A-Z0-9+_-]{1,12}|(signal|status) -?(\d{1,10}|None)|worker lost|out of memory", re.ASCII
)
_DISTANCE = r"\d{1,9}:\d{1,12}(\.\d{1,12})?(e[+-]\d{1,2})?"
_DISTANCES: Final = re.compile(rf"({_DISTANCE}( {_DISTANCE})*)?", re.ASCII)
_MEANING: Final[dict[type, tuple[Callable[[Any], bool], str]]] = {
    AttackRecord: (lambda row: row.success in (0, 1), "an attack neither succeeded nor failed"),
    ConfidenceRecord: (_is_confident, "a confidence is not a probability"),
    DrawRecord: (_has_draws, "an image has more right draws than draws"),
    FailedRecord: (_fails, "an image without a verdict has no end of its processes"),
    NearnessRecord: (lambda row: None not in vars(row).values(), "a measurement of nearness has no number"),
    QueryRecord: (
        lambda row: _DISTANCES.fullmatch(row.distances) is not None,
        "distances after queries are not numbers",
    ),
}
