"""Charts of success, or of the median distance, against queries: for each threat the attacks without gradients."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import pandas as pd

from robustkit.evidence.queries import checkpoints, curve

from ..shared.figures import SERIES, SIZE, Figure, Legend, add_hover_texts, axes_in, style_axes, svg_of
from ..shared.words import printable
from .board import Board
from .queries import most_queries
from .result_rows import ThreatLabel, distance_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS: Final = 40  # of each line
_MOST: Final = 12  # figures on a page; the table has all attacks


class QueryFigure(NamedTuple):
    """A figure with the names of its lines."""

    figure: Figure
    legend: list[Legend]


class _Line(NamedTuple):
    name: str
    points: pd.DataFrame  # rows of the curve


def by_queries(board: Board, prefix: str) -> list[QueryFigure]:
    """One figure for each threat, or several where it has more than seven attacks and models.

    Args:
        board: the models to draw.
        prefix: what the ids start with, different for each board on the page.
    """
    most = most_queries(board)
    if not most:
        return []
    table = curve(board.samples.frame, _marks(most))
    parts = [(threat, lines) for threat in (*board.threats, *board.minimums) for lines in _sevens(board, table, threat)]
    return [_figure(threat, lines, most, f"{prefix}-q{i}-") for i, (threat, lines) in enumerate(parts[:_MOST])]


def _marks(most: int) -> list[int]:
    spread = {round(most ** (number / _POINTS)) for number in range(_POINTS + 1)}
    return sorted(spread | {mark for mark in checkpoints(most) if mark <= most})


def _sevens(board: Board, table: pd.DataFrame, threat: ThreatLabel) -> list[list[_Line]]:
    own = table[(table["norm"] == threat.norm) & (table["eps_text"] == threat.eps_text)]
    lines = [
        _Line(printable(str(attack) if len(board.models) == 1 else f"{model}, {attack}"), points)
        for (model, attack), points in own.groupby(["model", "attack"], sort=False)
    ]
    return [lines[start : start + len(SERIES)] for start in range(0, len(lines), len(SERIES))]


def _figure(threat: ThreatLabel, lines: Sequence[_Line], most: int, prefix: str) -> QueryFigure:
    with axes_in(SIZE, (0.15, 0.17, 0.82, 0.79), prefix) as axes:
        ends = [_draw(axes, line, threat.is_minimum, number) for number, line in enumerate(lines)]
        axes.set_xscale("log")
        axes.set_xlim(1, max(most, 10))
        axes.set_ylim(0, None if threat.is_minimum else 100)
        axes.set_xticks(ticks := [10**power for power in range(int(math.log10(max(most, 10))) + 1)],
                        [f"{tick:,}" for tick in ticks])  # fmt: skip
        axes.minorticks_off()
        axes.set_xlabel("queries")
        axes.set_ylabel(f"median distance ({threat.norm})" if threat.is_minimum else "broken, %", parse_math=False)
        style_axes(axes)
        svg = svg_of(axes, prefix)
    norm = printable(threat.norm)
    what = (
        f"{norm}: median distance of the nearest adversarial example"
        if threat.is_minimum
        else f"{norm} {threat.eps_text}: broken"
    )
    title = f"{what} against queries"
    return QueryFigure(
        Figure(title, svg, f"{title}. After {most:,} queries or all: {', '.join(ends)}."),
        [Legend(line.name, "\N{EM DASH}", number) for number, line in enumerate(lines)],
    )


def _draw(axes: "Axes", line: _Line, distances: bool, number: int) -> str:
    """Draw one line with its interval; returns its end in words."""
    factor, columns = (1, ("median_distance", "distance_low", "distance_high")) if distances else (
        100, ("success_rate", "ci_low", "ci_high")
    )  # fmt: skip
    points = line.points[[math.isfinite(value) for value in line.points[columns[0]]]]
    if points.empty:
        return f"{line.name} unknown"
    value, low, high = (factor * points[column].astype(float) for column in columns)
    # The upper end of an interval is unknown where half of the images have hardly an adversarial example.
    high = high.where(high < math.inf, value)
    axes.fill_between(points["queries"], low, high, color=SERIES[number], alpha=0.13, linewidth=0, step="post")
    axes.step(points["queries"], value, color=SERIES[number], linewidth=1.6, where="post")
    texts = [distance_text(each) if distances else f"{each:.1f} %" for each in value]
    hover = zip(points["queries"], value, texts, strict=True)
    add_hover_texts(axes, ((x, y, f"{line.name}: {text} after {x:,} queries") for x, y, text in hover))
    return f"{line.name} {texts[-1]}"
