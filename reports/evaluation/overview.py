"""The first table of the page: models by radii, every accuracy as a dot with its interval, all on one scale."""

from typing import NamedTuple

from robustkit.evidence.corruptions import ROLE
from robustkit.evidence.union import UNION

from .board import Board
from .corruption_mean import CorruptionMean, corruption_means
from .headline_threat import headline_threat
from .ranking import Ranking, ranking
from .result_rows import ResultRow, ThreatLabel


class OverviewColumn(NamedTuple):
    """A radius, no attack, the union (all threats of a run at once), or the mean over corruptions."""

    threat: ThreatLabel | None
    leads: bool  # whether the table is sorted by it

    @property
    def is_union(self) -> bool:
        """Whether it is about all threats of a run at once."""
        return self.threat is not None and self.threat.norm == UNION

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean over corruptions."""
        return self.threat is not None and self.threat.norm == ROLE


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
    def has_union(self) -> bool:
        """Whether there is a column about all threats at once."""
        return any(column.is_union for column in self.columns)

    @property
    def has_corruptions(self) -> bool:
        """Whether there is a column about corrupted images."""
        return any(column.is_mean for column in self.columns)

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
    columns += [OverviewColumn(threat, leads=False) for threat in _unions(board)]
    corrupted = corruption_means(board)
    columns += [
        OverviewColumn(threat, leads=leading is None)
        for threat in dict.fromkeys(mean.row.threat for mean in corrupted.values())
    ]
    first = ranked.models if ranked else []
    others = [model for model in board.models if model not in first]
    if not first and corrupted:
        others.sort(key=lambda model: -corrupted[model].row.correct if model in corrupted else 0)
    models = [*first, *others]
    rows = []
    for model in models:
        cells = [_cell(board, model, column, corrupted.get(model)) for column in columns]
        rows.append(OverviewRow(model, ranked.place(model) if ranked else "", cells))
    return Overview(_norms(columns), columns, rows, ranked)


def _unions(board: Board) -> list[ThreatLabel]:
    """The unions of the models' threats: one, unless models were attacked in other norms or radii."""
    rows = [row for row in map(board.union, board.models) if row is not None and row.n]
    return list(dict.fromkeys(row.threat for row in rows if row.threat is not None))


def _norms(columns: list[OverviewColumn]) -> list[OverviewNorm]:
    norms = [column.threat.norm for column in columns if column.threat]
    return [OverviewNorm("", 1), *(OverviewNorm(norm, norms.count(norm)) for norm in dict.fromkeys(norms))]


def _cell(board: Board, model: str, column: OverviewColumn, mean: CorruptionMean | None) -> OverviewCell | None:
    row = _row(board, model, column, mean)
    if row is None or not row.n:
        return None
    return OverviewCell(row, board.certified(model, column.threat) if column.threat else None)


def _row(board: Board, model: str, column: OverviewColumn, mean: CorruptionMean | None) -> ResultRow | None:
    if column.threat is None:
        return board.clean(model)
    if column.is_mean:
        return mean.row if mean is not None and mean.row.threat == column.threat else None
    if not column.is_union:
        return board.worst(model, column.threat)
    union = board.union(model)
    return union if union is not None and union.threat == column.threat else None
