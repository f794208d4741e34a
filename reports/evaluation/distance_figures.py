"""Charts of accuracy against the radius from the distances of the nearest errors, one for each norm."""

from typing import TYPE_CHECKING

from robustkit.evidence.distances import curve

from ..shared.figures import SERIES, Figure, axes_in, style_axes, svg_of
from ..shared.words import printable
from .board import Board
from .figures import SIZE
from .result_rows import ThreatLabel

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def accuracy_by_distance(board: Board, prefix: str) -> list[Figure]:
    """One figure for each norm: the share of images without a known error within the radius, for each model.

    Args:
        board: the models to draw.
        prefix: what the ids start with, different for each board on the page.
    """
    if not board.minimums or board.samples.empty:
        return []
    whole = curve(board.samples)
    whole = whole[whole["attack"] == "worst-case"]
    return [_figure(board, whole, threat, f"{prefix}-d{i}-") for i, threat in enumerate(board.minimums)]


def _figure(board: Board, whole: "pd.DataFrame", threat: ThreatLabel, prefix: str) -> Figure:
    own = whole[whole["norm"] == threat.norm]
    with axes_in(SIZE, (0.13, 0.17, 0.84, 0.79), prefix) as axes:
        for number, model in enumerate(board.models):
            _line(axes, own[own["model"] == model], SERIES[number % 7])
        axes.set_xlim(0, float(own["radius"].max()) or 1.0)
        axes.set_ylim(0, 100)
        axes.set_yticks(range(0, 101, 20))
        axes.set_xlabel(f"radius ({threat.norm})", parse_math=False)
        axes.set_ylabel("no known error, %")
        style_axes(axes)
        svg = svg_of(axes, prefix)
    title = f"{printable(threat.norm)}: correctly classified and without a known error within the radius"
    medians = [f"{model}: median distance {cell.distance_text}." for model in board.models
               if (cell := board.worst(model, threat))]  # fmt: skip
    return Figure(title, svg, f"{title}. {' '.join(medians)}")


def _line(axes: "Axes", points: "pd.DataFrame", colour: str) -> None:
    low, high = 100 * points["ci_low"], 100 * points["ci_high"]
    axes.fill_between(points["radius"], low, high, color=colour, alpha=0.16, linewidth=0, step="post")
    axes.step(points["radius"], 100 * points["accuracy"], color=colour, linewidth=1.6, where="post")
