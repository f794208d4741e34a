"""Automatic checks below the tables in the terminal: why a result is not reliable, and how many checks passed."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from robustkit.checks.register import warnings_of

from ..shared.terminal import print_notes
from .board import Board
from .checks import ALARMS, check_summary


def print_unreliable(board: Board, console: Console) -> None:
    """Print, above the tables, which models have results that are not reliable, and why."""
    for sentence in check_summary(board).unreliable:
        console.print(Text(sentence, style="bold red"))


def print_checks(board: Board, console: Console) -> None:
    """Print what the checks say about a board; those that a warning says already are counted only."""
    print_notes(console, _lines(board))


def _lines(board: Board) -> Iterator[str]:
    summary = check_summary(board)
    if summary.switched_off:
        yield "Checks: switched off, so it is not known whether the attacks worked."
    elif summary.lines:
        yield f"Checks: {summary.counts}."
    checks = [check for run in board.runs for check in run.checks if check.alarming]
    warned = {*warnings_of(checks), *(warning for run in board.runs for warning in run.manifest["warnings"])}
    for check in checks:
        if check.severity == "major" and check.sentence not in warned:
            yield f"{ALARMS[check.status]}: {check.note}. {check.sentence}"
