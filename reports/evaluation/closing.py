"""The summary below many tables: models by norms and radii, each accuracy with its interval, in any width."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from robustkit.evidence.union import UNION

from ..shared.terminal import empty_table
from ..shared.words import UNKNOWN, in_ascii
from .board import Board
from .result_rows import ResultRow

_FEW: Final = 4  # models times radii that need no summary


class SummaryColumn(NamedTuple):
    """One threat, or clean images, and the row of each model."""

    name: str
    cells: list[ResultRow | None]


def is_needed(board: Board) -> bool:
    """Whether the tables of a board are too many to be taken in, or say nothing about their union."""
    several = len(board.threats) > 1 and len(board.models) * len(board.threats) >= _FEW
    return several or any(map(board.union, board.models))


def closing_table(board: Board, console: Console) -> Table:
    """Models by threats; threats by models, or one below the other, where that is too wide."""
    columns = list(_columns(board))
    for table in (_wide(board, columns), _tall(board, columns)):
        if Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width:
            return table
    return _long(board, columns)


def _columns(board: Board) -> Iterator[SummaryColumn]:
    yield SummaryColumn("clean", [board.clean(model) for model in board.models])
    for threat in board.threats:
        yield SummaryColumn(str(threat), [board.worst(model, threat) for model in board.models])
    unions = [board.union(model) for model in board.models]
    if any(unions):
        yield SummaryColumn(UNION, unions)


def _wide(board: Board, columns: Sequence[SummaryColumn]) -> Table:
    table = _empty(board)
    table.add_column("model", no_wrap=True)
    for column in columns:
        table.add_column(Text(column.name), justify="right", no_wrap=True)
    for number, model in enumerate(board.models):
        table.add_row(Text(model), *(_cell(column.cells[number]) for column in columns))
    return table


def _tall(board: Board, columns: Sequence[SummaryColumn]) -> Table:
    table = _empty(board)
    table.add_column("threat", no_wrap=True)
    for model in board.models:
        table.add_column(Text(model), justify="right", no_wrap=True)
    for column in columns:
        table.add_row(Text(column.name), *map(_cell, column.cells))
    return table


def _long(board: Board, columns: Sequence[SummaryColumn]) -> Table:
    """A table for any width: names are folded, accuracies and intervals are not."""
    table = _empty(board)
    for name in ("model", "threat"):
        table.add_column(name, overflow="fold", max_width=24, ratio=1)
    table.add_column("accuracy", justify="right", no_wrap=True)
    for number, model in enumerate(board.models):
        for place, column in enumerate(columns):
            table.add_row(Text(model if place == 0 else ""), Text(column.name), _cell(column.cells[number]))
        table.add_section()
    return table


def _empty(board: Board) -> Table:
    data = f"{board.images.dataset} {board.images.split}".strip()
    return empty_table(["Summary", data, f"n={board.images.n}", "% correct (95 % interval)"])


def _cell(row: ResultRow | None) -> Text:
    """The accuracy with its interval, in signs that every pipe has."""
    if row is None:
        return Text("-")
    interval = in_ascii(row.interval).removesuffix(" %")
    return Text(f"{in_ascii(row.percent).replace(UNKNOWN, '-').removesuffix(' %')} ({interval})")
