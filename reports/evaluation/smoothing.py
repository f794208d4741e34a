"""Sentences about smoothed classifiers: how their lower bound was computed, and what lies between both bounds."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..shared.words import printable
from .board import Board

BETWEEN = (
    "Unless a certificate is wrong, the robust accuracy of the smoothed classifier on these images lies between "
    "certified and worst-case. It is the share of images whose prediction is correct and changes nowhere within the "
    "radius."
)


class SmoothedModel(NamedTuple):
    """How one model is smoothed."""

    model: str
    sigma: float
    n: int
    alpha: float
    abstained: int

    @property
    def basis(self) -> str:
        """What its certificates are computed from."""
        return (
            f"Gaussian noise of sigma {self.sigma:g}, {self.n:,} copies of each image, each certificate wrong with a "
            f"chance of at most {self.alpha:g}"
        )


def smoothed_models(board: Board) -> list[SmoothedModel]:
    """The smoothed models of a board, in its order."""
    models = []
    for model in board.models:
        setting, clean = board.smoothing.get(model), board.clean(model)
        if setting is not None:
            models.append(_smoothed_model(model, setting, clean.abstained if clean else 0))
    return models


def notes(board: Board) -> list[str]:
    """The sentences below a table; none where nothing is smoothed."""
    models = smoothed_models(board)
    if not models:
        return []
    same_basis = len({model.basis for model in models}) == 1 and len(models) == len(board.models)
    bounds = (
        [f"certified: a lower bound by randomized smoothing: {models[0].basis}."]
        if same_basis
        else [f"certified, {model.model}: a lower bound by randomized smoothing: {model.basis}." for model in models]
    )
    return [*bounds, BETWEEN, *_abstained(models)]


def methods(board: Board) -> str:
    """How the lower bound was computed, for the methods paragraph; empty where nothing is smoothed."""
    models = smoothed_models(board)
    if not models:
        return ""
    how = "; ".join(f"{model.model}: {model.basis}" for model in models)
    return (
        f" Smoothed classifiers ({how}) predict the class that the network predicts most often for noisy copies. An "
        "image is predicted by all of its copies and certified as by Cohen, Rosenfeld and Kolter 2019 "
        "(arXiv:1902.02918): the "
        "first copies choose the class, the others bound its probability from below, and that bounds the L2 radius; "
        "L1 gets the same radius, Linf that divided by the square root of the number of values. Attacks see the mean "
        "probability over fresh copies and its gradient. A point counts as broken only if as many copies, at most "
        "1,000, with noise that no attack saw, significantly agree on another class. Over all points that an attack at "
        "one radius submits, the chance that it breaks an image by mistake is at most that of a wrong certificate."
    )


def _abstained(models: list[SmoothedModel]) -> list[str]:
    counts = ", ".join(f"{model.abstained}{f' ({model.model})' if len(models) > 1 else ''}" for model in models)
    return [f"clean: of the smoothed classifier; images on which it abstained count as wrong: {counts}."]


def _smoothed_model(model: str, setting: Mapping[str, Any], abstained: int) -> SmoothedModel:
    return SmoothedModel(
        printable(model), float(setting["sigma"]), int(setting["n"]), float(setting["alpha"]), abstained
    )
