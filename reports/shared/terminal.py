"""Tables that fit the terminal: a wider console for pipes, fewer columns in a narrow window."""

import io
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from robustkit.host.text import printable

PIPED_RICH: Final = 80  # columns that rich assumes when it does not write to a terminal
PIPED: Final = 100  # columns that we assume then: our tables need a few more


@contextmanager
def wide_enough(console: Console) -> Iterator[None]:
    """Within the context, a console that is no terminal and whose width nobody chose has `PIPED` columns."""
    before = console.width
    if not console.is_terminal and before == PIPED_RICH:
        console.width = PIPED
    try:
        yield
    finally:
        if console.width != before:
            console.width = before


class FittingTable(NamedTuple):
    """A table, and the names of those of its optional columns that it has."""

    table: Table
    shown: list[str]


class OptionalColumns(NamedTuple):
    """A table that is not made yet, of which some columns may be left out."""

    table_of: Callable[[list[str]], Table]  # from the names of the columns to show
    columns: Sequence[str]  # all of these names

    def without(self, dropped: Sequence[str]) -> FittingTable:
        """The table without some columns."""
        shown = _left(self.columns, dropped)
        return FittingTable(self.table_of(shown), shown)


def dropped_together(
    tables: Iterable[OptionalColumns], drops: Sequence[Sequence[str]], console: Console
) -> Sequence[str]:
    """The columns to leave out of all tables, so that each of them fits into the console.

    A table that is too wide in any case only leaves out what it has; `drops` and `console` are those of `fitting`.
    """
    needed = 0
    for each in tables:
        shown = fitting(*each, drops, console).shown
        needed = max(needed, next(i for i, dropped in enumerate(drops) if shown == _left(each.columns, dropped)))
    return drops[needed]


def fitting_table(
    table_of: Callable[[list[str]], Table], columns: Sequence[str], drops: Iterable[Sequence[str]], console: Console
) -> Table:
    """The table with as many of its columns as fit into the console, as `fitting` has it."""
    return fitting(table_of, columns, drops, console).table


def fitting(
    table_of: Callable[[list[str]], Table], columns: Sequence[str], drops: Iterable[Sequence[str]], console: Console
) -> FittingTable:
    """The table with as many of its columns as fit into the console, and which these are.

    Args:
        table_of: makes the table from the names of the columns to show.
        columns: names of all optional columns.
        drops: which of them to leave out, first nothing, then more and more; the last is used even if it does not fit.
        console: where the table will be printed.
    """
    for dropped in drops:
        table, shown = OptionalColumns(table_of, columns).without(dropped)
        # Measured with more columns than needed: rich never reports more than it is given.
        if Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width:
            break
    return FittingTable(table, shown)


def _left(columns: Sequence[str], dropped: Sequence[str]) -> list[str]:
    return [name for name in columns if name not in dropped]


def empty_table(title: Sequence[str]) -> Table:
    """A table without columns, in the look of all our tables, with the parts of its title above it."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.title, table.title_justify, table.title_style = Text(printable(" · ".join(title))), "left", "bold"
    return table


def plain_text(print_to: Callable[[Console], None]) -> str:
    """What a function prints, without colours, as wide as the terminal if there is one."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else None
    text = io.StringIO()
    # In a notebook rich would show the text as outputs of the cell, and write nothing into the file.
    print_to(Console(file=text, width=width, force_terminal=is_terminal, force_jupyter=False, color_system=None))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print sentences below a table, each indented by one column."""
    for note in notes:
        console.print(Padding(Text(printable(note)), (0, 0, 0, 1)))
