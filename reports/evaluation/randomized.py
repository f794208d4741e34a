"""Sentences about randomized models: what their two accuracies mean."""

from typing import NamedTuple

from ..shared.words import printable
from .board import Board

ONE_DRAW = (
    "one draw: the probability that a single answer is right, mean over images at their last points, from draws that "
    "neither attack nor verdict used; its interval covers the choice of images and the draws. Attacks stop as "
    "soon as another class is the most frequent one, so this accuracy is an upper bound as well."
)


class RandomizedModel(NamedTuple):
    """How one model is judged."""

    model: str
    eot: int
    draws: int
    alpha: float
    abstained: int


def randomized_models(board: Board) -> list[RandomizedModel]:
    """The randomized models of a board, in its order."""
    models = []
    for model in board.models:
        setting, clean = board.randomized.get(model), board.clean(model)
        if setting is not None:
            numbers = int(setting["eot"]), int(setting["draws"]), float(setting["alpha"])
            models.append(RandomizedModel(printable(model), *numbers, clean.abstained if clean else 0))
    return models


def notes(board: Board) -> list[str]:
    """The sentences below a table; none where nothing is randomized."""
    models = randomized_models(board)
    if not models:
        return []
    several = len(board.models) > 1
    abstained = ", ".join(f"{model.abstained}{f' ({model.model})' if several else ''}" for model in models)
    return [
        f"accuracy{' of randomized models' if several else ''}: by the class that is significantly the most frequent "
        f"one in up to {max(model.draws for model in models):,} fresh draws; an image is broken only if that is not "
        f"its label (wrong with a chance of at most {max(model.alpha for model in models):g} per image). Clean images "
        f"without such a class count as wrong: {abstained}.",
        ONE_DRAW,
    ]


def methods(board: Board) -> str:
    """How randomized models were judged, for the methods paragraph; empty where nothing is randomized."""
    models = randomized_models(board)
    if not models:
        return ""
    queries = "; ".join(f"{model.model}: {model.eot}" for model in models)
    return (
        f" Randomized models: attacks see the mean of some draws per query ({queries}). A point is judged by draws of "
        "its own, different ones for each image: more and more, until the two-sided binomial test of the two most "
        "frequent classes (PREDICT of Cohen, Rosenfeld and Kolter 2019) succeeds. All points of an image share one "
        "level. Where no class is certain the model abstains: a clean image then counts as wrong, an attacked one as "
        "not broken. The accuracy of one draw is measured at the last point of each image, in the worst case at the "
        "one that other draws showed to be the worst; its interval is that of Clopper and Pearson."
    )
