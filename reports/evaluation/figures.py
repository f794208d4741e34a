"""Charts of accuracy against the radius: one for each norm with several radii, or with distances of errors.

Between two radii a line is a reading aid. One radius alone has no line: it would invent a slope.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from robustkit.evidence.distances import curve

from ..shared.line_chart import ChartLine, ChartPoint, ChartTick, Drawing, LineChart, drawings, round_ticks
from ..shared.words import interval, percent, printable, radius_axis
from .board import Board
from .overview import overview
from .result_rows import ResultRow, ThreatLabel

if TYPE_CHECKING:
    import pandas as pd

MOST: Final = 14  # lines of a chart; the table has all models


def charts(board: Board) -> list[tuple[LineChart, list[Drawing]]]:
    """All charts of a board with their drawings."""
    norms = list(dict.fromkeys(threat.norm for threat in board.threats))
    several = [norm for norm in norms if sum(threat.norm == norm for threat in board.threats) > 1]
    made = [_against_radius(board, norm) for norm in several]
    return [(chart, drawings(chart)) for chart in [*made, *_against_distance(board)]]


def _against_radius(board: Board, norm: str) -> LineChart:
    threats = [threat for threat in board.threats if threat.norm == norm]
    ranked = [row.model for row in overview(board).rows]
    lines = [line for model in ranked[:MOST] for line in _lines(board, model, threats)]
    title = f"{printable(norm)}: worst-case accuracy against the radius"
    classes = len(board.class_names)
    words = " ".join(f"{line.name}: {'; '.join(point.text for point in line.points)}." for line in lines)
    return LineChart(
        title, f"{title}. {words}", radius_axis(norm), threats[-1].eps,
        [ChartTick(0.0, "0"), *(ChartTick(threat.eps, threat.eps_text) for threat in threats)], lines,
        100 / classes if classes else None, f"chance 1/{classes}",
    )  # fmt: skip


def _lines(board: Board, model: str, threats: list[ThreatLabel]) -> Iterator[ChartLine]:
    number, clean = board.models.index(model), board.clean(model)
    worst = [(threat, cell) for threat in threats if (cell := board.worst(model, threat)) and cell.n]
    points = [_point(0.0, clean, "0")] if clean and clean.n else []
    points += [_point(threat.eps, cell, threat.eps_text) for threat, cell in worst]
    if worst:
        yield ChartLine(model, worst[-1][1].percent, number, points)
    certified = [(threat, cell) for threat in threats if (cell := board.certified(model, threat)) and cell.n]
    if certified:
        points = [_point(threat.eps, cell, threat.eps_text) for threat, cell in certified]
        yield ChartLine(f"certified {model}", certified[-1][1].percent, number, points, dashed=True)


def _point(x: float, cell: ResultRow, eps_text: str) -> ChartPoint:
    text = f"{cell.percent} at {eps_text} ({cell.interval})"
    return ChartPoint(x, 100 * cell.correct / cell.n, 100 * cell.low, 100 * cell.high, text)


def _against_distance(board: Board) -> list[LineChart]:
    if not board.minimums or not len(board.samples):
        return []
    whole = curve(board.samples.frame)
    whole = whole[whole["attack"] == "worst-case"]
    return [_of_distances(board, whole[whole["norm"] == norm.norm], norm) for norm in board.minimums]


def _of_distances(board: Board, table: "pd.DataFrame", norm: ThreatLabel) -> LineChart:
    largest = float(table["radius"].max()) or 1.0
    lines = []
    for number, model in enumerate(board.models[:MOST]):
        own = table[table["model"] == model]
        columns = zip(own["radius"], own["correct"], own["n"], own["ci_low"], own["ci_high"], strict=True)
        points = [_share_within(model, *row) for row in columns if row[2]]
        end = percent(int(own["correct"].iloc[-1]), int(own["n"].iloc[-1])) if len(own) else ""
        lines.append(ChartLine(model, end, number, points, steps=True))
    title = f"{printable(norm.norm)}: correctly classified and without a known error within the radius"
    medians = [f"{model}: median distance {cell.distance_text}." for model in board.models
               if (cell := board.worst(model, norm))]  # fmt: skip
    return LineChart(
        title, f"{title}. {' '.join(medians)}", radius_axis(norm.norm), largest,
        round_ticks(largest), lines,
    )  # fmt: skip


def _share_within(model: str, radius: float, correct: int, n: int, low: float, high: float) -> ChartPoint:
    """The images without a known error within a radius."""
    text = f"{model}: {percent(correct, n)} at {radius:.3g} ({interval(low, high, correct, n)})"
    return ChartPoint(radius, 100 * correct / n, 100 * low, 100 * high, text)
