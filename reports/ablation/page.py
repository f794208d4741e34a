"""The page of an ablation: what each choice of a fine-tuning changed, how sure that is, and what it cost.

One HTML file without scripts that asks nothing from anywhere. Names of models and layers come from strangers:
autoescape is on, and a policy in the page forbids everything else.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from robustkit.host.files import write_text

from ..shared.csv import write_frame
from ..shared.rendering import rendered, styles
from ..shared.words import DASH, printable

BASELINE = "baseline"
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class AblationContext:
    """What the tables say about where their numbers come from."""

    model: str
    dataset: str
    threat: str
    images: int  # of the test set
    judge: str  # attack that passed the verdicts
    seeds: int
    plan: str
    missing: tuple[str, ...] = ()  # trainings that were not run
    base: Mapping[str, object] = field(default_factory=dict)  # choices that no axis varies
    command: str = ""


class Bar(NamedTuple):
    """An interval on an axis that all rows share, in percent of its width."""

    low: float
    width: float
    at: float


class Change(NamedTuple):
    """A difference against the baseline, in points."""

    value: str
    near: str
    bar: Bar | None
    kind: str  # "better", "worse" or "unclear"


class AblationRow(NamedTuple):
    """One cell."""

    name: str
    status: str
    well: bool
    seeds: str  # empty where all were run
    worst: str
    worst_near: str
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
    """Cells with as many changes."""

    title: str
    rows: list[AblationRow]


class AblationHeadline(NamedTuple):
    """The numbers on top."""

    baseline: AblationRow | None
    best: AblationRow | None  # of the cells that trained well, that with the highest worst-case accuracy
    clear: int  # cells whose interval leaves out no change at all
    compared: int
    run: int
    planned: int
    troubled: list[AblationRow]


def write_ablation(frame: pd.DataFrame, runs: pd.DataFrame, folder: Path, about: AblationContext) -> None:
    """Put ablation.csv, ablation-runs.csv and ablation.html into `folder`, each whole or not at all.

    Args:
        frame: one row per cell, the baseline first.
        runs: one row per training.
        folder: where they go.
        about: where the numbers come from.

    Raises:
        UserError: `folder` cannot be written to.
    """
    write_frame(folder / "ablation.csv", frame)
    write_frame(folder / "ablation-runs.csv", runs)
    write_text(folder / "ablation.html", page(frame, runs, about))


def page(frame: pd.DataFrame, runs: pd.DataFrame, about: AblationContext) -> str:
    """The page about an ablation as HTML."""
    shown = rows(frame)
    return rendered("ablation/ablation.html.jinja",
        style=styles("shared/style.css", "ablation/ablation.css"),
        about=_printable(about),
        model=printable(about.model),
        verdict=_verdict(frame, shown, about),
        groups=_groups(frame, shown),
        reach=points(_reach(frame)).lstrip("+"),
        runs=[_run(record) for record in _records(runs)],
        missing=[printable(name) for name in about.missing],
        base=[(printable(key), printable(str(value))) for key, value in about.base.items()],
        data={"cells": json.loads(frame.to_json(orient="records")), "missing": list(about.missing)},
    )  # fmt: skip


def rows(frame: pd.DataFrame) -> list[AblationRow]:
    """The cells as texts."""
    reach = _reach(frame)
    return [_row(record, reach) for record in _records(frame)]


def percent(share: float) -> str:
    """A share as "39.7 %", a dash where there is none."""
    return DASH if math.isnan(share) else f"{100 * share:.1f} %"


def points(difference: float) -> str:
    """A difference as "+3.2", in points."""
    return DASH if math.isnan(difference) else f"{100 * difference:+.1f}".replace("-", MINUS)


def _row(record: Mapping[str, Any], reach: float) -> AblationRow:
    low, high = (100 * record[f"worst_{end}"] for end in ("low", "high"))
    return AblationRow(
        name=printable(record["cell"]),
        status=printable(record["status"]),
        well=record["status"] == "finished",
        seeds="" if record["seeds"] == record["planned"] else f"{record['seeds']} of {record['planned']}",
        worst=percent(record["worst"]),
        worst_near="" if math.isnan(low) else f"{low:.1f}{DASH}{high:.1f}",
        clean=percent(record["clean"]),
        ce=percent(record["ce"]),
        gap=DASH if math.isnan(record["gap"]) else f"{100 * record['gap']:.1f}",
        masked=bool(record["masked"]),
        worst_change=_change(record, "worst_change", reach),
        clean_change=_change(record, "clean_change", reach),
        epochs=_span(str(record["best_epoch"])),
        learning=_few(100 * record["learning_share"]),
        seconds=_few(record["seconds_per_epoch"]),
        outer=f"{record['outer_mib']:.1f}",
        attack=f"{record['attack_mib']:.1f}",
    )


def _change(record: Mapping[str, Any], name: str, reach: float) -> Change:
    value, low, high = record[name], record[f"{name}_low"], record[f"{name}_high"]
    if math.isnan(value):
        return Change("", "", None, "unclear")
    kind = "better" if low > 0 else "worse" if high < 0 else "unclear"
    place = [50 + 50 * end / reach for end in (low, high, value)]
    bar = Bar(place[0], place[1] - place[0], place[2])
    return Change(points(value), f"{points(low)} to {points(high)}", bar, kind)


def _reach(frame: pd.DataFrame) -> float:
    """How far the axis of the changes goes to each side."""
    ends = [abs(float(value)) for name in ("worst_change_low", "worst_change_high") for value in frame.get(name, [])]
    return max((end for end in ends if not math.isnan(end)), default=0.0) or 0.01


def _groups(frame: pd.DataFrame, shown: Sequence[AblationRow]) -> list[Group]:
    found: dict[int, list[AblationRow]] = {}
    for changes, row in zip(frame.get("changes", []), shown, strict=True):
        found.setdefault(int(changes), []).append(row)
    words = {0: "", 1: "One change", 2: "Two changes", 3: "Three changes"}
    return [Group(words.get(changes, f"{changes} changes"), group) for changes, group in found.items()]


def _verdict(frame: pd.DataFrame, shown: Sequence[AblationRow], about: AblationContext) -> AblationHeadline:
    baseline = next((row for row in shown if row.name == BASELINE), None)
    well = [(record["worst"], -number) for number, record in enumerate(_records(frame))
            if shown[number].well and record["changes"] and not math.isnan(record["worst"])]  # fmt: skip
    compared = [row for row in shown if row.worst_change.bar]
    run = int(frame["seeds"].sum()) if len(frame) else 0
    return AblationHeadline(
        baseline, shown[-max(well)[1]] if well else None, sum(row.worst_change.kind != "unclear" for row in compared),
        len(compared), run, run + len(about.missing), [row for row in shown if not row.well],
    )  # fmt: skip


def _run(record: Mapping[str, Any]) -> dict[str, Any]:
    """One training, as texts where it has any."""
    told = {key: printable(value) if isinstance(value, str) else value for key, value in record.items()}
    return {**told, "share": {kind: percent(record[kind]) for kind in ("clean", "ce", "worst")}}


def _printable(about: AblationContext) -> AblationContext:
    texts = {each.name: printable(value) for each in fields(about)
             if isinstance(value := getattr(about, each.name), str)}  # fmt: skip
    return replace(about, **texts)  # type: ignore[arg-type]


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in record.items()} for record in frame.to_dict(orient="records")]


def _span(numbers: str) -> str:
    """From the least to the most of several numbers with spaces between them."""
    found = sorted(int(number) for number in numbers.split())
    if not found:
        return DASH
    return str(found[0]) if found[0] == found[-1] else f"{found[0]}{DASH}{found[-1]}"


def _few(value: float) -> str:
    """Three digits at most before the point's share is noise."""
    if math.isnan(value):
        return DASH
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
