"""The headline of each model: how many images are classified correctly, with and without attacks, in plain words."""

from typing import NamedTuple

from ..shared.words import in_plain_words
from .board import Board, EvaluationProgress
from .result_rows import ResultRow, ThreatLabel


class HeadlineAccuracy(NamedTuple):
    """The worst case at one threat, and the certified accuracy of a smoothed model."""

    threat: ThreatLabel
    cell: ResultRow
    certified: ResultRow | None


class Headline(NamedTuple):
    """One model at the first threat of the board, and the accuracies at all threats."""

    model: str
    clean: ResultRow | None
    first: HeadlineAccuracy | None
    words: str  # what the first threat allows an attacker
    comment: str  # what a reader may overlook in the numbers
    levels: list[HeadlineAccuracy]
    unfinished: EvaluationProgress | None


def headlines(board: Board) -> list[Headline]:
    """The headline of each model."""
    return [_headline(board, model) for model in board.models]


def _headline(board: Board, model: str) -> Headline:
    clean = board.clean(model)
    worst = [(threat, cell) for threat in board.threats if (cell := board.worst(model, threat))]
    levels = [HeadlineAccuracy(threat, cell, board.certified(model, threat)) for threat, cell in worst]
    first = levels[0] if levels else None
    words = in_plain_words(first.threat.norm, first.threat.eps_text) if first else ""
    state = board.unfinished.get(model)
    comment = "" if state else _comment(board, model, clean, first)
    return Headline(model, clean, first, words, comment, levels, state)


def _comment(board: Board, model: str, clean: ResultRow | None, first: HeadlineAccuracy | None) -> str:
    """What a reader may overlook in the numbers; empty if nothing."""
    if first is None:
        return _about_distances(board, model) or "No attack was run: this says nothing about robustness."
    cell = first.cell
    if cell.n < 30:
        return f"With {cell.n} image{'' if cell.n == 1 else 's'} this is a trial of the tool, not a measurement."
    if first.certified and first.certified.correct == cell.correct:
        return "The two bounds are equal: no stronger attack can lower this accuracy."
    if clean and clean.correct == cell.correct and clean.correct:
        return "No attack broke any image: either the radius is small, or the attacks fail on this model. Check which."
    classes = len(board.class_names)
    return "That is no better than guessing." if classes and cell.correct / cell.n <= 1 / classes else ""


def _about_distances(board: Board, model: str) -> str:
    """The median distances of the nearest errors, in words; empty if none were looked for."""
    cells = [(threat.norm, cell) for threat in board.minimums if (cell := board.worst(model, threat))]
    known = [f"{cell.distance_text} in {norm} ({cell.distance_interval})" for norm, cell in cells if cell.distance_text]
    return f"The nearest errors that were found have a median distance of {', '.join(known)}." if known else ""
