"""An ablation as a table in the terminal: a row per cell, the baseline first, cells that failed marked."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..shared.terminal import empty_table, fitting_table, print_notes, wide_enough
from ..shared.words import DASH, printable
from .page import AblationContext, AblationRow, rows

COLUMNS: Final = ("95 %", "clean", "CE", "gap", "epoch", "learns %", "s/epoch", "MiB")
# What a narrow terminal leaves out, in this order; the change and its interval are never left out.
DROPS: Final = (
    (),
    ("learns %",),
    ("learns %", "MiB"),
    ("learns %", "MiB", "epoch"),
    ("learns %", "MiB", "epoch", "CE"),
    ("learns %", "MiB", "epoch", "CE", "s/epoch", "95 %"),
    ("learns %", "MiB", "epoch", "CE", "s/epoch", "95 %", "gap", "clean"),
)
FEW: Final = 6  # trainings that are named if they were not run


def print_ablation(frame: pd.DataFrame, about: AblationContext, console: Console) -> None:
    """Print an ablation for a human: a row per cell, and what the columns mean."""
    with wide_enough(console):
        console.print(fitting_table(partial(_table, rows(frame), about), COLUMNS, DROPS, console))
        print_notes(console, _notes(frame, about))


def _table(shown: Sequence[AblationRow], about: AblationContext, columns: Sequence[str]) -> Table:
    table = empty_table(_title(about))
    table.add_column("cell", overflow="fold", max_width=36)
    for name in ("worst", *(["95 %"] if "95 %" in columns else []), "change", "95 %"):
        table.add_column(name, justify="right", no_wrap=True)
    rest = [name for name in columns if name != "95 %"]
    for name in rest:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in shown:
        texts = _texts(row)
        near = [texts["95 %"]] if "95 %" in columns else []
        line = [texts["worst"], *near, texts["change"], texts["change 95 %"], *(texts[name] for name in rest)]
        table.add_row(Text(row.name), *map(Text, line), Text(_mark(row)), style="" if row.is_finished else "dim")
    return table


def _texts(row: AblationRow) -> dict[str, str]:
    """The columns of one line; signs as ASCII, because the encoding of a pipe may have no others."""
    texts = {
        "worst": row.worst, "95 %": row.worst_interval, "change": row.worst_change.value,
        "change 95 %": row.worst_change.interval, "clean": row.clean, "CE": row.ce,
        "gap": row.gap + ("!" if row.masked else ""), "epoch": row.epochs,
        "learns %": row.learning, "s/epoch": row.seconds, "MiB": f"{row.outer} / {row.attack}",
    }  # fmt: skip
    return {name: text.replace("\N{MINUS SIGN}", "-").replace(DASH, "-") for name, text in texts.items()}


def _mark(row: AblationRow) -> str:
    return "" if row.is_finished else row.status


def _title(about: AblationContext) -> list[str]:
    seeds = f"{about.seeds} {'seed' if about.seeds == 1 else 'seeds'}"
    return [printable(about.model), about.dataset, f"n={about.images}", about.threat, seeds]


def _notes(frame: pd.DataFrame, about: AblationContext) -> Iterator[str]:
    yield f"Verdicts by {about.judge} on cross-entropy and on the margin; worst: correctly classified under both."
    yield "change: against the baseline on the same images and seeds, in points, with its 95 % interval."
    if about.seeds == 1:
        yield "One seed: the intervals hold for these trainings alone, not for what another seed would give."
    if bool(frame["masked"].any()):
        yield "gap with !: cross-entropy alone overstates by more than 5 points: a sign of masked gradients."
    unchanged = frame.cell[["0" in epochs.split() for epochs in frame.best_epoch.map(str)]]
    if len(unchanged):
        names = "; ".join(map(printable, unchanged))
        yield (
            f"Trainings in which no epoch was better than the start (ablation-runs.csv names them) in: {names}. Their "
            "figures are those of the network before the training."
        )
    if about.missing:
        few = "; ".join(printable(name) for name in about.missing[:FEW])
        more = "; ..." if len(about.missing) > FEW else ""
        yield f"Not run, because the time was up ({len(about.missing)}): {few}{more}. The same command continues."
