"""The page of an ablation: what each choice of a fine-tuning changed, with its interval, and what it cost.

One HTML file that loads nothing. Names of models and layers are not trusted: they are escaped.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from robustkit.host.files import write_text

from ..shared.csv import write_frame
from ..shared.rendering import render, styles
from ..shared.words import DASH, printable, signed_points

BASELINE = "baseline"


@dataclass(frozen=True)
class AblationContext:
    """What was compared, for the head of the page and the title of the table."""

    model: str
    dataset: str
    threat: str
    images: int  # of the test set
    judge: str  # attack of the final evaluation
    seeds: int
    design: str
    missing: tuple[str, ...] = ()  # trainings that were not run
    base: Mapping[str, object] = field(default_factory=dict)  # choices that no axis varies
    command: str = ""


class Bar(NamedTuple):
    """An interval on the axis of all rows, in percent of its width."""

    low: float
    width: float
    at: float


class Change(NamedTuple):
    """A difference against the baseline, in points."""

    value: str
    interval: str
    bar: Bar | None
    kind: str  # "better", "worse" or "unclear"


class AblationRow(NamedTuple):
    """One cell."""

    name: str
    status: str
    is_finished: bool
    seeds: str  # empty where all were run
    worst: str
    worst_interval: str
    clean: str
    ce: str
    gap: str
    masked: bool
    worst_change: Change
    clean_change: Change
    epochs: str
    learning: str
    seconds: str
    outer: str
    attack: str


class Group(NamedTuple):
    """Cells with the same number of changes."""

    title: str
    rows: list[AblationRow]


class AblationHeadline(NamedTuple):
    """The numbers on top."""

    baseline: AblationRow | None
    best: AblationRow | None  # the finished cell with the highest worst-case accuracy
    clear: int  # cells whose change has an interval without zero
    compared: int
    run: int
    planned: int
    troubled: list[AblationRow]
    effects: list[AblationRow]  # cells with a change, the largest gain first
    helped: list[AblationRow]  # trained to their end, and their interval lies above zero, the largest gain first
    hurt: list[AblationRow]  # the interval lies below zero, the largest loss first


def write_ablation(frame: pd.DataFrame, runs: pd.DataFrame, folder: Path, about: AblationContext) -> None:
    """Write ablation.csv, ablation-runs.csv and ablation.html into `folder`, each replaced in one step.

    Args:
        frame: one row per cell, the baseline first.
        runs: one row per training.
        folder: where to write.
        about: what was compared.

    Raises:
        UserError: `folder` cannot be written to.
    """
    write_frame(folder / "ablation.csv", frame)
    write_frame(folder / "ablation-runs.csv", runs)
    write_text(folder / "ablation.html", page(frame, runs, about))


def page(frame: pd.DataFrame, runs: pd.DataFrame, about: AblationContext) -> str:
    """The page of an ablation as HTML."""
    cells = rows(frame)
    return render("ablation/ablation.html.jinja",
        style=styles("shared/style.css", "ablation/ablation.css"),
        about=_printable(about),
        model=printable(about.model),
        verdict=_headline(frame, cells, about),
        groups=_groups(frame, cells),
        reach=signed_points(_reach(frame)).lstrip("+"),
        runs=[_run(record) for record in _records(runs)],
        missing=[printable(name) for name in about.missing],
        base=[(printable(key), printable(str(value))) for key, value in about.base.items()],
        data={"cells": json.loads(frame.to_json(orient="records")), "missing": list(about.missing)},
    )  # fmt: skip


def rows(frame: pd.DataFrame) -> list[AblationRow]:
    """The cells as text."""
    reach = _reach(frame)
    return [_row(record, reach) for record in _records(frame)]


def percent_of(share: float) -> str:
    """A share as "39.7 %"; a dash for NaN."""
    return DASH if math.isnan(share) else f"{100 * share:.1f} %"


def _row(record: Mapping[str, Any], reach: float) -> AblationRow:
    low, high = (100 * record[f"worst_{end}"] for end in ("low", "high"))
    return AblationRow(
        name=printable(record["cell"]),
        status=printable(record["status"]),
        is_finished=record["status"] == "finished",
        seeds="" if record["seeds"] == record["planned"] else f"{record['seeds']} of {record['planned']}",
        worst=percent_of(record["worst"]),
        worst_interval="" if math.isnan(low) else f"{low:.1f}{DASH}{high:.1f}",
        clean=percent_of(record["clean"]),
        ce=percent_of(record["ce"]),
        gap=DASH if math.isnan(record["gap"]) else f"{100 * record['gap']:.1f}",
        masked=bool(record["masked"]),
        worst_change=_change(record, "worst_change", reach),
        clean_change=_change(record, "clean_change", reach),
        epochs=_span(str(record["best_epoch"])),
        learning=_rounded(100 * record["learning_share"]),
        seconds=_rounded(record["seconds_per_epoch"]),
        outer=f"{record['outer_mib']:.1f}",
        attack=f"{record['attack_mib']:.1f}",
    )


def _change(record: Mapping[str, Any], name: str, reach: float) -> Change:
    value, low, high = record[name], record[f"{name}_low"], record[f"{name}_high"]
    if math.isnan(value):
        return Change("", "", None, "unclear")
    kind = "better" if low > 0 else "worse" if high < 0 else "unclear"
    ends = [50 + 50 * end / reach for end in (low, high, value)]
    bar = Bar(ends[0], ends[1] - ends[0], ends[2])
    return Change(signed_points(value), f"{signed_points(low)} to {signed_points(high)}", bar, kind)


def _reach(frame: pd.DataFrame) -> float:
    """How far the axis of the changes reaches on each side of zero."""
    ends = [abs(float(value)) for name in ("worst_change_low", "worst_change_high") for value in frame.get(name, [])]
    return max((end for end in ends if not math.isnan(end)), default=0.0) or 0.01


def _groups(frame: pd.DataFrame, rows: Sequence[AblationRow]) -> list[Group]:
    groups: dict[int, list[AblationRow]] = {}
    for changes, row in zip(frame.get("changes", []), rows, strict=True):
        groups.setdefault(int(changes), []).append(row)
    titles = {0: "", 1: "One change", 2: "Two changes", 3: "Three changes"}
    return [Group(titles.get(changes, f"{changes} changes"), group) for changes, group in groups.items()]


def _headline(frame: pd.DataFrame, rows: Sequence[AblationRow], about: AblationContext) -> AblationHeadline:
    baseline = next((row for row in rows if row.name == BASELINE), None)
    finished = [(record["worst"], -number) for number, record in enumerate(_records(frame))
            if rows[number].is_finished and record["changes"] and not math.isnan(record["worst"])]  # fmt: skip
    compared = [row for row in rows if row.worst_change.bar]
    run = int(frame["seeds"].sum()) if len(frame) else 0
    by_gain = [rows[place] for place in np.argsort(-frame["worst_change"].to_numpy(), kind="stable")]
    effects = [row for row in by_gain if row.worst_change.bar]
    return AblationHeadline(
        baseline=baseline,
        best=rows[-max(finished)[1]] if finished else None,
        clear=sum(row.worst_change.kind != "unclear" for row in compared),
        compared=len(compared),
        run=run,
        planned=run + len(about.missing),
        troubled=[row for row in rows if not row.is_finished],
        effects=effects,
        helped=[row for row in effects if row.worst_change.kind == "better" and row.is_finished],
        hurt=[row for row in reversed(effects) if row.worst_change.kind == "worse"],
    )


def _run(record: Mapping[str, Any]) -> dict[str, Any]:
    """One training, with its names printable and its shares as text."""
    texts = {key: printable(value) if isinstance(value, str) else value for key, value in record.items()}
    return {**texts, "share": {kind: percent_of(record[kind]) for kind in ("clean", "ce", "worst")}}


def _printable(about: AblationContext) -> AblationContext:
    texts = {each.name: printable(value) for each in fields(about)
             if isinstance(value := getattr(about, each.name), str)}  # fmt: skip
    return replace(about, **texts)  # type: ignore[arg-type]


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in record.items()} for record in frame.to_dict(orient="records")]


def _span(numbers: str) -> str:
    """The smallest and the largest of several numbers, given as text with spaces: "3 to 9", with a dash."""
    ordered = sorted(int(number) for number in numbers.split())
    if not ordered:
        return DASH
    return str(ordered[0]) if ordered[0] == ordered[-1] else f"{ordered[0]}{DASH}{ordered[-1]}"


def _rounded(value: float) -> str:
    """A number with three digits; without decimals from 100 on."""
    if math.isnan(value):
        return DASH
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
