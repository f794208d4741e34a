"""Parts of a run's page that come from further files in its folder: the history of a training, a diagnosis."""

import html
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from robustkit.diagnosis.reading import read_diagnosis

from ..diagnosis.page import section
from ..shared.words import printable
from .board import Board
from .training_figure import training_figure


class ExtraPart(NamedTuple):
    """A part of the page; `html` is escaped already."""

    name: str
    title: str
    html: str
    style: str  # path of the style sheet it needs, or ""


def extra_parts(board: Board, prefix: str) -> list[ExtraPart]:
    """The parts for all runs of a board, in the order of the runs; ids of figures start with `prefix`."""
    return [part for number in range(len(board.runs)) for part in _parts(board, number, prefix)]


def _parts(board: Board, number: int, prefix: str) -> Iterator[ExtraPart]:
    run = board.runs[number]
    suffix = f" ({printable(run.folder.name)})" if len(board.runs) > 1 else ""
    history, diagnosis = run.folder / "history.csv", run.folder / "diagnosis.json"
    if history.is_file():
        drawing = _training_html(history, f"{prefix}-t{number}-")
        yield ExtraPart(f"training-{number}", f"Training{suffix}", drawing, "")
    if diagnosis.is_file():
        text = section(read_diagnosis(diagnosis))
        yield ExtraPart(f"diagnosis-{number}", f"Diagnosis{suffix}", text, "diagnosis/diagnosis.css")


def _training_html(history: Path, prefix: str) -> str:
    figure = training_figure(pd.read_csv(history), prefix)
    caption = f'<figcaption class="sr">{html.escape(figure.text)}</figcaption>'
    title = html.escape(figure.title)
    return f'<div class="figures"><figure>{figure.svg}{caption}</figure></div><p>{title}</p>'
