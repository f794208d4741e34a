"""The first table of the page: models by radii, every accuracy as a dot with its interval, all on one scale."""

from typing import NamedTuple

from .board import Board
from .headline_threat import headline_threat
from .ranking import Ranking, ranking
from .result_rows import ResultRow, ThreatLabel


class OverviewColumn(NamedTuple):
    """A radius, or no attack."""

    threat: ThreatLabel | None
    leads: bool  # whether the table is sorted by it


class OverviewNorm(NamedTuple):
    """Columns that share a norm; "" for no attack."""

    norm: str
    columns: int


class OverviewCell(NamedTuple):
    """An accuracy, and the certified one of a smoothed model."""

    row: ResultRow
    certified: ResultRow | None


class OverviewRow(NamedTuple):
    """A model; None where it was not attacked."""

    model: str
    place: str
    cells: list[OverviewCell | None]


class Overview(NamedTuple):
    """The whole table, the best model first."""

    norms: list[OverviewNorm]
    columns: list[OverviewColumn]
    rows: list[OverviewRow]
    ranked: Ranking | None

    @property
    def has_ranges(self) -> bool:
        """Whether some model shares its place with others."""
        return any(not row.place.isdecimal() for row in self.rows if row.place)


def overview(board: Board) -> Overview:
    """The table of a board; one column where no attack had a radius."""
    leading = headline_threat(board)
    ranked = ranking(board, leading.threat) if leading else None
    columns = [OverviewColumn(None, leads=False)]
    columns += [
        OverviewColumn(threat, leads=leading is not None and threat == leading.threat) for threat in board.threats
    ]
    first = ranked.models if ranked else []
    models = [*first, *(model for model in board.models if model not in first)]
    rows = [
        OverviewRow(model, ranked.place(model) if ranked else "", [_cell(board, model, column) for column in columns])
        for model in models
    ]
    return Overview(_norms(board), columns, rows, ranked)


def _norms(board: Board) -> list[OverviewNorm]:
    norms = [threat.norm for threat in board.threats]
    return [OverviewNorm("", 1), *(OverviewNorm(norm, norms.count(norm)) for norm in dict.fromkeys(norms))]


def _cell(board: Board, model: str, column: OverviewColumn) -> OverviewCell | None:
    row = board.worst(model, column.threat) if column.threat else board.clean(model)
    if row is None or not row.n:
        return None
    return OverviewCell(row, board.certified(model, column.threat) if column.threat else None)
