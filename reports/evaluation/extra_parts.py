"""Parts of a run's page that come from further files in its folder: the history of a training, a diagnosis."""

import html
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from robustkit.diagnosis.reading import read_diagnosis
from robustkit.evidence.run import Run
from robustkit.models.model_file import training_notes

from ..diagnosis.page import section
from ..shared.line_chart import drawings
from ..shared.rendering import render
from ..shared.words import printable
from .board import Board
from .corruptions import corruptions_html, has_corruptions
from .training_figure import read_history, training_chart
from .tuning import tuning_lines, tuning_sentences


class ExtraPart(NamedTuple):
    """A part of the page; `html` is escaped already."""

    name: str
    title: str
    html: str
    style: str  # path of the style sheet it needs, or ""
    leads: bool = False  # it stands above the tables


def extra_parts(board: Board, prefix: str) -> list[ExtraPart]:
    """The parts for all runs of a board, in the order of the runs; ids of figures start with `prefix`."""
    return [part for number in range(len(board.runs)) for part in _parts(board, number, prefix)]


def _parts(board: Board, number: int, prefix: str) -> Iterator[ExtraPart]:
    run = board.runs[number]
    suffix = f" ({printable(run.name)})" if len(board.runs) > 1 else ""
    if has_corruptions(run):
        yield ExtraPart(
            f"corruptions-{number}", f"Corruptions{suffix}", corruptions_html(run), "evaluation/corruptions.css"
        )
    history, diagnosis = run.folder / "history.csv", run.folder / "diagnosis.json"
    if history.is_file():
        frame = read_history(history)
        drawing = _not_shown(history) if frame is None else _training_html(run, frame)
        yield ExtraPart(f"training-{number}", f"Fine-tuning{suffix}", drawing, "", frame is not None)
    if diagnosis.is_file():
        yield ExtraPart(
            f"diagnosis-{number}", f"Diagnosis{suffix}", _diagnosis_html(diagnosis), "diagnosis/diagnosis.css"
        )


def _not_shown(file: Path) -> str:
    # What somebody else put there must not cost the page of a finished evaluation.
    return f"<p>{html.escape(printable(file.name))} in the folder of the run was not written by robustkit.</p>"


def _diagnosis_html(file: Path) -> str:
    try:
        return section(read_diagnosis(file))
    except Exception:  # of the right keys and wrong values: whatever the template meets in them
        return _not_shown(file)


def _training_html(run: Run, history: pd.DataFrame) -> str:
    lines, chart = tuning_lines(run), training_chart(history)
    notes = [printable(note) for note in training_notes(run.folder / "model.safetensors")]
    return render(
        "evaluation/tuning.html.jinja", sentences=list(tuning_sentences(lines)), notes=notes, lines=lines, chart=chart,
        drawings=drawings(chart),
    )  # fmt: skip
