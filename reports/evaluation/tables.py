"""The tables of the page as plain values; the template decides how they look."""

from typing import NamedTuple

from ..shared.words import per_image
from .board import Board
from .cost import attacked_images
from .result_rows import OrderedRow, ResultRow, ThreatLabel
from .samples import ClassRow, broken_only_by, class_rows


class AccuracyRow(NamedTuple):
    """One model at one threat; None where an attack was not run."""

    model: str
    clean: ResultRow | None
    worst: ResultRow | None
    certified: ResultRow | None
    attacks: list[ResultRow | None]


class AccuracyBlock(NamedTuple):
    """The models at one threat."""

    threat: ThreatLabel
    rows: list[AccuracyRow]


class Contribution(NamedTuple):
    """The result of an attack on one model."""

    cell: ResultRow
    only: int | None  # images that no other attack broke; None if there are no rows per image
    passes: str
    inherited: int  # images that a smaller radius broke already


class ContributionRow(NamedTuple):
    """An attack, or a member of the ensemble above it, and its result on each model."""

    name: str
    member: bool
    by_model: list[Contribution | None]


class ContributionBlock(NamedTuple):
    """The attacks at one threat."""

    threat: ThreatLabel
    rows: list[ContributionRow]


class ClassTable(NamedTuple):
    """Classes of a model; `total` counts those that are left out too."""

    model: str
    rows: list[ClassRow]
    weakest: list[list[int]]  # for each threat the rows with the lowest accuracy
    total: int


MOST_CLASSES = 20


def accuracy_blocks(board: Board) -> list[AccuracyBlock]:
    """Accuracy under attack across models, a block for each threat."""
    return [
        AccuracyBlock(threat, [_accuracy(board, model, threat) for model in board.models]) for threat in board.threats
    ]


def contribution_blocks(board: Board) -> list[ContributionBlock]:
    """What each attack broke, one block for each threat."""
    return [ContributionBlock(threat, _contributions(board, threat)) for threat in board.threats]


def class_tables(board: Board) -> list[ClassTable]:
    """Accuracy per class, one table for each model; of many classes the weakest at the first threat."""
    tables = []
    for model in board.models:
        rows = class_rows(board, model)
        shown = sorted(sorted(rows, key=_first_share)[:MOST_CLASSES], key=rows.index) if rows else []
        weakest = [_weakest(shown, i) for i in range(len(board.threats))]
        tables.append(ClassTable(model, shown, weakest, len(rows)))
    return [table for table in tables if table.rows]


def _accuracy(board: Board, model: str, threat: ThreatLabel) -> AccuracyRow:
    rows = {row.cell.attack: row.cell for row in board.attack_rows(model, threat) if not row.ensemble}
    bounds = board.worst(model, threat), board.certified(model, threat)
    return AccuracyRow(model, board.clean(model), *bounds, [rows.get(name) for name in board.attacks])


def _contributions(board: Board, threat: ThreatLabel) -> list[ContributionRow]:
    by_model: list[dict[tuple[str, str | None], Contribution]] = []
    order: dict[tuple[str, str | None], OrderedRow] = {}
    for model in board.models:
        only = broken_only_by(board, model, threat)
        rows = board.attack_rows(model, threat)
        order |= {(row.name, row.ensemble): row for row in rows if (row.name, row.ensemble) not in order}
        by_model.append(
            {(row.name, row.ensemble): _contribution(board, row.cell, only.get(row.cell.attack)) for row in rows}
        )
    return [
        ContributionRow(row.name, row.ensemble is not None, [one.get(key) for one in by_model])
        for key, row in order.items()
    ]


def _contribution(board: Board, cell: ResultRow, only: int | None) -> Contribution:
    attacked = attacked_images(board, cell)
    return Contribution(cell, only, per_image(cell.forwards + cell.backwards, attacked), cell.attacked - attacked)


def _first_share(row: ClassRow) -> float:
    share = next((share for share in row.worst if share), row.clean)
    return share.at.value


def _weakest(rows: list[ClassRow], threat: int) -> list[int]:
    values = {i: share.at.value for i, row in enumerate(rows) if (share := row.worst[threat])}
    return [i for i, value in values.items() if value == min(values.values())]
