"""A diagnosis as a table in the terminal: every call, masking ones marked, then the findings and remedies."""

from functools import partial
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from robustkit.diagnosis import Diagnosis, LayerRow
from robustkit.diagnosis.text import COLUMNS, chosen, findings, lines_of

from ..shared.terminal import empty_table, fitting_table, wide_enough
from ..shared.words import printable

# What a narrow terminal leaves out, in this order; fidelity and verdict are never left out.
DROPS: Final = ((), ("kind",), ("kind", "|grad|"), ("kind", "|grad|", "lin"), ("kind", "|grad|", "lin", "zero"))
_LEFT: Final = ("layer", "kind", "verdict")
_NAME: Final = 36  # letters: "model.network.layer4.0.downsample.0" on one line leaves room for `lin` in 80 columns
_WORD: Final = 8  # columns for the word in front of each finding


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis for a human: a row per call, then findings, remedies and their proof."""
    with wide_enough(console):
        console.print(fitting_table(partial(_table, diagnosis), COLUMNS, DROPS, console))
        left_out = len(diagnosis.rows) - len(chosen(diagnosis))
        if left_out:
            console.print(Text(f" {left_out} more calls, none of them masking.", style="dim"))
        for word, text in findings(diagnosis):
            entry = Table.grid(padding=(0, 1, 0, 0))
            entry.add_column(width=_WORD, style="dim")
            entry.add_column(overflow="fold")
            entry.add_row(word, Text(printable(text), style="bold" if word in ("verdict", "proof") else ""))
            console.print(Padding(entry, (0, 0, 0, 1)))


def _table(diagnosis: Diagnosis, shown: list[str]) -> Table:
    title = [printable(diagnosis.model), f"{diagnosis.norm} {diagnosis.eps}", f"n={diagnosis.n}"]
    table = empty_table(title)
    for name in shown:
        if name in _LEFT:
            table.add_column(name, overflow="fold", max_width=_NAME)
        else:
            table.add_column(name, justify="right", no_wrap=True)
    for row, line in lines_of(diagnosis):
        texts = dict(zip(COLUMNS, line, strict=True))
        if row in diagnosis.causes:
            texts["verdict"] += " <-"
        table.add_row(*(Text(printable(texts[name])) for name in shown), style=_style(diagnosis, row))
    return table


def _style(diagnosis: Diagnosis, row: LayerRow | None) -> str:
    return "bold" if row in diagnosis.causes else "" if row is not None and row.verdict == "faithful" else "dim"
