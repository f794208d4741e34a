"""The distances of the nearest adversarial examples as rows of a table, in the terminal and on the page."""

from collections.abc import Iterator
from typing import NamedTuple

from ..shared.words import per_image
from .board import Board
from .result_rows import ResultRow, ThreatLabel

NOTE = (
    "median distance: of the nearest adversarial example that was found, over the correctly classified images; an "
    "upper bound, as a stronger attack may find nearer ones. unknown: none was found for half of them."
)


class DistanceRow(NamedTuple):
    """One attack, or the nearest of all attacks, on one model."""

    model: str
    attack: str
    cell: ResultRow
    found: str
    passes: str


class DistanceBlock(NamedTuple):
    """The models in one norm."""

    norm: str
    rows: list[DistanceRow]


def distance_blocks(board: Board) -> list[DistanceBlock]:
    """What is known about distances, a block for each norm."""
    return [DistanceBlock(threat.norm, list(_rows(board, threat))) for threat in board.minimums]


def medians(board: Board) -> Iterator[str]:
    """A sentence about the nearest of all attacks for each model and norm, and what such a distance is."""
    for threat in board.minimums:
        rows = [(model, board.worst(model, threat)) for model in board.models]
        for model, row in rows:
            if row is not None and row.distance_text:
                bounds = f"95 %: {row.distance_interval}, n = {row.attacked}"
                unfinished = ", of an unfinished run" if row.is_open else ""
                yield f"{model}: median distance in {threat.norm} {row.distance_text} ({bounds}){unfinished}."
    if board.minimums:
        yield NOTE


def _rows(board: Board, threat: ThreatLabel) -> Iterator[DistanceRow]:
    for model in board.models:
        cells = [row.cell for row in board.attack_rows(model, threat)]
        worst = board.worst(model, threat)
        for cell in [*cells, *([worst] if worst and len(cells) > 1 else [])]:
            passes = f"{per_image(cell.forwards, cell.images)}+{per_image(cell.backwards, cell.images)}"
            name = "nearest of all" if cell is worst else cell.attack
            yield DistanceRow(model, name, cell, f"{cell.broken} of {cell.attacked}", passes)
