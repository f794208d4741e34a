"""Sentences about models that reject images: what a rejection counts as."""

from ..shared.words import printable
from .board import Board


def notes(board: Board) -> list[str]:
    """The sentences below a table; none where no model rejects."""
    several = len(board.models) > 1
    counts = [
        f"{clean.abstained}{f' ({printable(model)})' if several else ''}"
        for model in board.models
        if model in board.rejecting and (clean := board.clean(model)) is not None
    ]
    if not counts:
        return []
    return [
        "rejections: an adversarial example is an image that is misclassified and not rejected; an image that is "
        "rejected only under attack counts as robust, and clean images that are rejected count as wrong: "
        f"{', '.join(counts)}."
    ]


def methods(board: Board) -> str:
    """What a rejection counts as, for the methods paragraph; empty where no model rejects."""
    if not notes(board):
        return ""
    return (
        " The last output of a model that rejects is the logit of the rejection. An image counts as broken only if a "
        "wrong class has a larger logit than the true class and than the rejection; attacks see the larger one of "
        "these two in the place of the true class. A rejected clean image counts as wrong."
    )
