"""Which attack broke which image: a strip for each attack, the images in one order for all strips.

Images that the same attacks broke stand beside each other, so ten thousand of them need no more room than ten.
"""

from typing import Final, NamedTuple

import numpy as np

from .board import Board
from .headline_threat import headline_threat
from .result_rows import ThreatLabel

_MOST_RUNS: Final = 400  # separate bars of a strip; more are narrower than a pixel


class AttackStrip(NamedTuple):
    """An attack and the parts of the strip that it broke: start and length as shares of the width."""

    attack: str
    member: bool
    broken: int
    bars: list[tuple[float, float]]


class MatrixOfModel(NamedTuple):
    """The strips of one model at one threat; `images` were classified correctly before."""

    model: str
    images: int
    attacks: int  # an ensemble and its members are one
    all_broke: int  # images that every attack broke
    none_broke: int
    strips: list[AttackStrip]


class AttackMatrix(NamedTuple):
    """The strips of all models with more than one attack."""

    threat: ThreatLabel
    models: list[MatrixOfModel]


def attack_matrix(board: Board) -> AttackMatrix | None:
    """The matrix at the headline's threat; None where no model met two attacks there."""
    leading = headline_threat(board)
    if leading is None:
        return None
    models = [found for model in board.models if (found := _of_model(board, model, leading.threat))]
    return AttackMatrix(leading.threat, models) if models else None


def _of_model(board: Board, model: str, threat: ThreatLabel) -> MatrixOfModel | None:
    images = board.verdicts.images(model)
    numbers, by_attack = images.sample[images.correct], board.verdicts.broken_by(model, threat)
    rows = [row for row in board.attack_rows(model, threat) if row.cell.attack in by_attack]
    if len(rows) < 2 or not len(numbers):
        return None
    table = np.stack([np.isin(numbers, by_attack[row.cell.attack]) for row in rows])
    # First by how many attacks broke an image, then by which.
    order = np.lexsort((*table[::-1], table.sum(0)))[::-1]
    strips = [
        AttackStrip(row.name, row.ensemble is not None, int(flags.sum()), _bars(flags[order]))
        for row, flags in zip(rows, table, strict=True)
    ]
    attacks = [table[i] for i, row in enumerate(rows) if row.ensemble is None]
    alone = np.stack(attacks)
    broke = int(alone.all(0).sum()), int((~alone.any(0)).sum())
    return MatrixOfModel(model, len(numbers), len(attacks), *broke, strips)


def _bars(flags: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]") -> list[tuple[float, float]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    runs = [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    longest = sorted(runs, key=lambda run: run[0] - run[1])[:_MOST_RUNS]
    return [(start / len(flags), (end - start) / len(flags)) for start, end in sorted(longest)]
