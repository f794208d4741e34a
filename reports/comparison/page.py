"""The page of a comparison: for each threat the answer, the models by rank with their groups, and all differences.

One HTML file that loads nothing. Names of models are not trusted: they are escaped.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from robustkit.comparison.compare import ALIKE, Comparison
from robustkit.evidence.corruptions import ALL
from robustkit.host.files import write_text

from ..shared.rendering import render, styles
from ..shared.words import interval, p_value, percent, printable, signed_points
from .terminal import length_text, threat_tables


class RankedModel(NamedTuple):
    """One model under one threat; shares are in percent."""

    name: str
    accuracy: str
    interval: str
    fraction: str  # such as 195/504
    group: str
    at: float
    low: float
    high: float


class PairDifference(NamedTuple):
    """Accuracy of one model minus that of another, in points."""

    value: str
    interval: str
    kind: str  # "higher", "lower" or "alike"


class PairLine(NamedTuple):
    """A paired test, with the images that one of both models alone gets right."""

    first: str
    second: str
    difference: PairDifference
    first_only: int
    second_only: int
    n: int
    p: str
    verdict: str


class ThreatView(NamedTuple):
    """Everything under one threat."""

    title: str
    answer: str
    ranked: list[RankedModel]
    matrix: list[list[PairDifference | None]]  # row minus column, in the order of the rank
    pairs: list[PairLine]


class DistanceLine(NamedTuple):
    """How much farther the nearest adversarial examples of one model are than those of another."""

    norm: str
    first: str
    second: str
    difference: str
    interval: str
    farther: str  # images for each of them
    p: str
    verdict: str


class CorruptionDifference(NamedTuple):
    """How much more of its corrupted images one model classifies correctly than another."""

    corruption: str
    first: str
    second: str
    difference: PairDifference
    better: str  # images for each of them
    p: str
    verdict: str


def write_comparison_page(comparison: Comparison, path: Path) -> None:
    """Write the page of a comparison, replacing an old one in one step.

    Raises:
        UserError: the file cannot be written.
    """
    write_text(path, page(comparison))


def page(comparison: Comparison) -> str:
    """The page as HTML."""
    models = [printable(name) for name in dict.fromkeys(comparison.ranking["model"])]
    views = [_view(*parts) for parts in threat_tables(comparison)]
    tables = {
        "ranking": comparison.ranking, "pairs": comparison.pairs, "distances": comparison.distances,
        "corruptions": comparison.corruptions,
    }  # fmt: skip
    return render(
        "comparison/comparison.html.jinja",
        style=styles("shared/style.css", "comparison/comparison.css"),
        models=models,
        threats=sorted(views, key=lambda view: view.title == "clean"),  # what the page is about comes first
        distances=[_distance(row) for row in comparison.distances.to_dict("records")],
        corruptions=[_corruption(row) for row in _all_first(comparison.corruptions)],
        notes=[printable(note) for note in comparison.notes],
        data={name: json.loads(frame.to_json(orient="records")) for name, frame in tables.items()},
    )


def _view(title: str, ranked: pd.DataFrame, pairs: pd.DataFrame) -> ThreatView:
    title, rows = printable(title), ranked.to_dict("records")
    lines = [_line(row) for row in pairs.to_dict("records")]
    by_names = {(line.first, line.second): line.difference for line in lines}
    by_names |= {(line.second, line.first): _line(_swapped(row)).difference
                 for line, row in zip(lines, pairs.to_dict("records"), strict=True)}  # fmt: skip
    names = [printable(row["model"]) for row in rows]
    matrix = [[by_names.get((row, column)) for column in names] for row in names]
    return ThreatView(title, _answer(title, rows, matrix), [_ranked(row) for row in rows], matrix, lines)


def _ranked(row: Mapping[Any, Any]) -> RankedModel:
    k, n = row["correct"], row["n"]
    return RankedModel(
        printable(row["model"]), percent(k, n), interval(row["ci_low"], row["ci_high"], k, n), f"{k}/{n}", row["group"],
        100 * k / n, 100 * row["ci_low"], 100 * row["ci_high"],
    )  # fmt: skip


def _line(row: Mapping[Any, Any]) -> PairLine:
    kind = {"first": "higher", "second": "lower"}.get(row["verdict"], "alike")
    difference = PairDifference(
        signed_points(row["difference"]), f"{signed_points(row['ci_low'])} to {signed_points(row['ci_high'])}", kind
    )
    winner = {"first": row["first"], "second": row["second"]}.get(row["verdict"])
    return PairLine(
        printable(row["first"]), printable(row["second"]), difference, row["first_only"], row["second_only"], row["n"],
        p_value(row["p_holm"]), ALIKE if winner is None else f"{printable(winner)} is higher",
    )  # fmt: skip


def _distance(row: Mapping[Any, Any]) -> DistanceLine:
    winner = {"first": row["first"], "second": row["second"]}.get(row["verdict"])
    return DistanceLine(
        row["norm"], printable(row["first"]), printable(row["second"]), length_text(row["difference"]),
        f"{length_text(row['ci_low'])} to {length_text(row['ci_high'])}",
        f"{row['first_farther']} : {row['second_farther']}", p_value(row["p_holm"]),
        ALIKE if winner is None else f"{printable(winner)} is farther",
    )  # fmt: skip


def _all_first(corruptions: pd.DataFrame) -> list[dict[Any, Any]]:
    rows = corruptions.to_dict("records")
    return sorted(rows, key=lambda row: row["corruption"] != ALL)


def _corruption(row: Mapping[Any, Any]) -> CorruptionDifference:
    line = _line({**row, "first_only": row["first_better"], "second_only": row["second_better"]})
    return CorruptionDifference(
        printable(str(row["corruption"])), line.first, line.second, line.difference,
        f"{line.first_only} : {line.second_only}", line.p, line.verdict,
    )  # fmt: skip


def _swapped(row: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same pair, the second model first."""
    other = {"first": "second", "second": "first"}
    return {
        **row, "first": row["second"], "second": row["first"], "difference": -row["difference"],
        "ci_low": -row["ci_high"], "ci_high": -row["ci_low"], "first_only": row["second_only"],
        "second_only": row["first_only"], "verdict": other.get(row["verdict"], row["verdict"]),
    }  # fmt: skip


def _answer(title: str, rows: list[dict[Any, Any]], matrix: list[list[PairDifference | None]]) -> str:
    """One sentence: which models are on top, and how far above the next."""
    best = rows[0]
    on_top = [row for row in rows if set(row["group"]) & set(best["group"])]
    name, share = printable(best["model"]), percent(best["correct"], best["n"])
    under = "on clean images" if title == "clean" else f"at {title}"
    if len(on_top) == len(rows):
        return f"No model differs significantly from {name}, the highest {under} with {share}."
    if len(on_top) > 1:
        others = " and ".join(printable(row["model"]) for row in on_top[1:3]) + (" and others" * (len(on_top) > 3))
        return f"{name} is the highest {under} with {share}, but does not differ significantly from {others}."
    lead, second = matrix[0][1], rows[1]
    above = (
        f", {lead.value.lstrip('+')} points (95 %: {lead.interval}) above {printable(second['model'])}" if lead else ""
    )
    return f"{name} is the highest {under}: {share}{above}."
