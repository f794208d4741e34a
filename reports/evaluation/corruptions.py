"""Accuracy on corrupted images: a table in the terminal, a heat map for each model on the page, and a CSV file."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from robustkit.evidence.corruptions import ALL, CORRUPTION_COLUMNS, ROLE
from robustkit.evidence.derived import CORRUPTIONS
from robustkit.evidence.run import Run

from ..shared.csv import write_frame
from ..shared.rendering import render
from ..shared.terminal import empty_table
from ..shared.words import UNKNOWN, in_ascii, interval, mean_interval, mean_percent, printable

_SIDE_BY_SIDE = 5  # models whose means fit beside each other in a terminal


class CorruptionCell(NamedTuple):
    """Accuracy under one corruption at one severity."""

    severity: int
    text: str
    share: float  # of the images, from 0 to 100
    interval: str


class CorruptionLine(NamedTuple):
    """One corruption of one model, or the mean over all of them."""

    name: str
    cells: list[CorruptionCell]  # empty in the line of all
    mean: str
    interval: str
    ce: str  # empty without a baseline
    relative_ce: str


class CorruptionTable(NamedTuple):
    """All corruptions of one model."""

    model: str
    severities: list[int]
    lines: list[CorruptionLine]
    overall: CorruptionLine


def has_corruptions(run: Run) -> bool:
    """Whether corrupted images were judged."""
    return not run.corruptions.empty


def write_corruptions(run: Run, folder: Path) -> None:
    """Write corruptions.csv, if corrupted images were judged.

    Raises:
        UserError: `folder` cannot be written to.
    """
    if has_corruptions(run):
        write_frame(folder / CORRUPTIONS, run.corruptions, CORRUPTION_COLUMNS)


def corruption_tables(run: Run) -> list[CorruptionTable]:
    """One table for each model, in the order of the run."""
    if not has_corruptions(run):
        return []
    results = run.results[run.results["role"] == ROLE]
    return [
        _table(str(model), means, results[results["model"] == model])
        for model, means in run.corruptions.groupby("model", sort=False)
    ]


def corruption_notes(run: Run) -> list[str]:
    """What the numbers mean."""
    first = run.corruptions.iloc[0]
    names = run.corruptions.loc[run.corruptions["corruption"] != ALL, "corruption"].nunique()
    source = (
        "made from the clean images (frost with drawn ice in place of photographs)"
        if first["source"] == "generated" else f"read from {printable(str(first['source']))}"
    )  # fmt: skip
    severity = "severity" if str(first["severities"]).isdigit() else "severities"
    over = f"{names} corruption{'s' * (names > 1)} and {severity} {first['severities']}"
    notes = [
        f"Corruptions: {source}; all is the mean over {over}, not a worst case. Intervals cover the choice of images."
    ]
    if not pd.isna(first["baseline"]):
        notes.append(
            f"CE: error divided by that of {printable(str(first['baseline']))}, in percent; relative CE: the same of "
            "errors minus clean errors. In the line all: mCE and relative mCE."
        )
    return notes


def methods(runs: Sequence[Run]) -> str:
    """How the verdicts on corrupted images were made; empty if there are none."""
    if not any(map(has_corruptions, runs)):
        return ""
    return (
        " Each corrupted image was classified once, by the unmodified model, as 8-bit pixels, whether or not the clean "
        "image is classified correctly; the intervals of means over corruptions are those of Clopper and Pearson for "
        "the mean of one share per image."
    )


def unchecked(runs: Sequence[Run]) -> list[str]:
    """Changes of images that were not tried; none if corrupted images were judged."""
    return [] if any(map(has_corruptions, runs)) else ["blur", "weather"]


def print_corruptions(run: Run, console: Console) -> None:
    """Print corruption x severity of one model, or the means of several models."""
    tables = corruption_tables(run)
    if len(tables) == 1:
        console.print(_of_one_model(run, tables[0]))
    elif 1 < len(tables) <= _SIDE_BY_SIDE:
        console.print(_side_by_side(run, tables))
    elif tables:
        console.print(_of_models(run, tables))


def corruptions_html(run: Run) -> str:
    """The heat maps of a run, escaped."""
    return render("evaluation/corruptions.html.jinja", tables=corruption_tables(run), notes=corruption_notes(run))


def _table(model: str, means: pd.DataFrame, results: pd.DataFrame) -> CorruptionTable:
    severities = sorted({int(value) for value in results["eps"]})
    lines = [_line(row, results) for row in means.to_dict("records")]
    overall = next((line for line in lines if line.name == ALL), lines[0])
    return CorruptionTable(printable(model), severities, [line for line in lines if line.name != ALL], overall)


def _line(row: Mapping[Hashable, Any], results: pd.DataFrame) -> CorruptionLine:
    own = results[results["attack"] == row["corruption"]].to_dict("records")
    known = bool(row["n"])
    return CorruptionLine(
        printable(str(row["corruption"])),
        [_cell(each) for each in own],
        mean_percent(row["accuracy"]) if known else UNKNOWN,
        mean_interval(float(row["ci_low"]), float(row["ci_high"]), row["accuracy"]) if known else UNKNOWN,
        _error(row["ce"]),
        _error(row["relative_ce"]),
    )


def _cell(row: Mapping[Hashable, Any]) -> CorruptionCell:
    n, correct = int(row["n"]), int(row["correct"])
    low, high = float(row["ci_low"]), float(row["ci_high"])
    text = f"{100 * correct / n:.1f}" if n else UNKNOWN
    return CorruptionCell(int(row["eps"]), text, 100 * correct / n if n else 0, interval(low, high, correct, n))


def _error(value: float | None) -> str:
    return "" if value is None or pd.isna(value) else f"{100 * value:.1f}"


def _title(run: Run, *more: str) -> Sequence[str]:
    first = run.corruptions.iloc[0]
    data = f"{first['dataset']} {first['split']}".strip()
    return [*more, data, f"n={int(first['n'])}", "corruptions", "accuracy in percent"]


def _of_one_model(run: Run, table: CorruptionTable) -> Table:
    shown = empty_table(_title(run, table.model))
    shown.add_column("corruption", no_wrap=True)
    errors = any(line.ce for line in [*table.lines, table.overall])
    columns = [*map(str, table.severities), "mean", "95 % interval", *(["CE", "relative CE"] if errors else [])]
    for name in columns:
        shown.add_column(name, justify="right", no_wrap=True)
    for line in _with_overall(table):
        texts = [cell.text for cell in line.cells] or [""] * len(table.severities)
        more = [line.mean.removesuffix(" %"), in_ascii(line.interval), *([line.ce, line.relative_ce] if errors else [])]
        shown.add_row(*(Text(text.replace(UNKNOWN, "-")) for text in (line.name, *texts, *more)),
                      style="bold" if line.name == ALL else "")  # fmt: skip
    return shown


def _side_by_side(run: Run, tables: Sequence[CorruptionTable]) -> Table:
    shown = empty_table([*_title(run), "mean over severities"])
    shown.add_column("corruption", no_wrap=True)
    errors = any(table.overall.ce for table in tables)
    for table in tables:
        shown.add_column(table.model, justify="right", overflow="fold")
    for lines in zip(*map(_with_overall, tables), strict=True):
        texts = [line.mean.removesuffix(" %").replace(UNKNOWN, "-") for line in lines]
        shown.add_row(Text(lines[0].name), *map(Text, texts), style="bold" if lines[0].name == ALL else "")
    shown.add_row("95 % interval", *(Text(in_ascii(table.overall.interval).removesuffix(" %")) for table in tables))
    if errors:
        shown.add_row("mCE", *(Text(table.overall.ce) for table in tables))
        shown.add_row("relative mCE", *(Text(table.overall.relative_ce) for table in tables))
    return shown


def _of_models(run: Run, tables: Sequence[CorruptionTable]) -> Table:
    shown = empty_table([*_title(run), "mean over corruptions"])
    shown.add_column("model", overflow="fold", max_width=40)
    errors = any(table.overall.ce for table in tables)
    for name in ("mean", "95 % interval", *(["mCE", "relative mCE"] if errors else [])):
        shown.add_column(name, justify="right", no_wrap=True)
    for table in tables:
        line = table.overall
        texts = [line.mean, in_ascii(line.interval), *([line.ce, line.relative_ce] if errors else [])]
        shown.add_row(Text(table.model), *(Text(text.replace(UNKNOWN, "-")) for text in texts))
    return shown


def _with_overall(table: CorruptionTable) -> Iterator[CorruptionLine]:
    yield from table.lines
    if table.overall.name == ALL:
        yield table.overall
