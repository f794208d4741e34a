"""What images are taken for under attack: a table of true and predicted classes for each model, at the headline threat.

A broken image counts with the class that the first attack reached that broke it; others with the class they had.
"""

from typing import Final, NamedTuple

import numpy as np

from robustkit.evidence.parts import column, has_verdict, is_broken
from robustkit.evidence.rows import NO_VERDICT

from .board import Board
from .headline_threat import headline_threat
from .image_verdicts import Numbers
from .result_rows import ThreatLabel

MOST_CLASSES: Final = 12  # of a table that fits a page; of more only the commonest confusions are listed
_MOST_MODELS: Final = 6
_LISTED: Final = 10
_UNKNOWN: Final = -2  # in the place of a class, where -1 says that the model abstains


class ConfusionCell(NamedTuple):
    """Images of one class taken for another, and their share of the class."""

    images: int
    share: float


class Mistake(NamedTuple):
    """A pair of classes, and how many images of the first were taken for the second."""

    label: str
    taken_for: str
    images: int


class Confusion(NamedTuple):
    """One model: a full table where there are few classes, and the commonest mistakes."""

    model: str
    classes: list[str]
    rows: list[list[ConfusionCell]]
    mistakes: list[Mistake]


class ConfusionTables(NamedTuple):
    """The first models of a board."""

    threat: ThreatLabel
    tables: list[Confusion]


def confusion_tables(board: Board) -> ConfusionTables | None:
    """What images are taken for at the headline's threat; None without one, or without rows."""
    leading = headline_threat(board)
    if leading is None or not len(board.samples):
        return None
    models = [model for model in board.models if board.worst(model, leading.threat)][:_MOST_MODELS]
    tables = [_of_model(board, model, leading.threat) for model in models if len(board.verdicts.images(model).sample)]
    return ConfusionTables(leading.threat, tables) if tables else None


def _of_model(board: Board, model: str, threat: ThreatLabel) -> Confusion:
    images, predicted = board.verdicts.images(model), _predictions(board, model, threat)
    pairs, counts = np.unique(np.stack([images.label, predicted]), axis=1, return_counts=True)
    found = {(int(label), int(pred)): int(count) for label, pred, count in zip(*pairs, counts, strict=True)}
    classes = sorted({each for pair in found for each in pair})
    wrong = sorted(((count, pair) for pair, count in found.items() if pair[0] != pair[1]), key=lambda each: -each[0])
    mistakes = [Mistake(_name(board, a), _name(board, b), count) for count, (a, b) in wrong[:_LISTED]]
    if len(classes) > MOST_CLASSES:
        return Confusion(model, [], [], mistakes)
    rows = []
    for label in classes:
        total = sum(found.get((label, pred), 0) for pred in classes)
        row = [found.get((label, pred), 0) for pred in classes]
        rows.append([ConfusionCell(count, count / total if total else 0.0) for count in row])
    return Confusion(model, [_name(board, each) for each in classes], rows, mistakes)


def _predictions(board: Board, model: str, threat: ThreatLabel) -> Numbers:
    """For each image the class that it has after all attacks, or `_UNKNOWN`."""
    images = board.verdicts.images(model)
    predicted = images.clean_pred.copy()
    parts = board.verdicts.parts_within(model, threat)
    for part in parts:
        failed = has_verdict(part, NO_VERDICT)
        predicted[np.searchsorted(images.sample, part["sample"][failed])] = _UNKNOWN
    # The first attack that broke an image is written last.
    for part in reversed(parts):
        broken = is_broken(part)
        places = np.searchsorted(images.sample, part["sample"][broken])
        predicted[places] = column(part, "adv_pred")[broken].astype(np.int64)
    return predicted


def _name(board: Board, label: int) -> str:
    return "no verdict" if label == _UNKNOWN else board.class_name(label)
