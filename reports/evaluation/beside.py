"""What lies beside a run in its folder and belongs on its page: a training's history, a diagnosis."""

import html
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from robustkit.diagnosis.reading import read_diagnosis

from ..diagnosis.page import section
from ..shared.words import printable
from .board import Board
from .training_figure import training_figure


class Beside(NamedTuple):
    """A part of the page; `html` is escaped already."""

    name: str
    title: str
    html: str
    style: str  # the file of its own style, or nothing


def beside(board: Board, prefix: str) -> list[Beside]:
    """The parts for all runs of a board, in their order."""
    return [part for number, run in enumerate(board.runs) for part in _parts(board, number, prefix)]


def _parts(board: Board, number: int, prefix: str) -> Iterator[Beside]:
    run = board.runs[number]
    suffix = f" ({printable(run.folder.name)})" if len(board.runs) > 1 else ""
    history, diagnosis = run.folder / "history.csv", run.folder / "diagnosis.json"
    if history.is_file():
        figure = training_figure(pd.read_csv(history), f"{prefix}-t{number}-")
        drawn = (
            f'<div class="figures"><figure>{figure.svg}<figcaption class="sr">{html.escape(figure.text)}</figcaption>'
        )
        yield Beside(
            f"training-{number}", f"Training{suffix}", f"{drawn}</figure></div><p>{html.escape(figure.title)}</p>", ""
        )
    if diagnosis.is_file():
        found = section(read_diagnosis(diagnosis))
        yield Beside(f"diagnosis-{number}", f"Diagnosis{suffix}", found, "diagnosis/diagnosis.css")
