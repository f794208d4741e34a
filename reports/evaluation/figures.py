"""Charts of worst-case and certified accuracy against the radius, one for each norm."""

from typing import TYPE_CHECKING, Final

from ..shared.figures import INK, MARKERS, MARKS, SERIES, Figure, Legend, axes_in, style_axes, svg_of
from ..shared.words import printable, radius_axis
from .board import Board
from .result_rows import ResultRow, ThreatLabel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE: Final = (4.0, 2.7)  # inches of 72 units: letters of 9 units are 11 pixels on a phone
CLOSEST_TICKS: Final = 0.11  # as a share of the axis; closer labels would touch


def legend(board: Board) -> list[Legend]:
    """Mark and colour of each model, the same in every figure of the board."""
    return [Legend(model, MARKS[_mark(i)], i % 7) for i, model in enumerate(board.models)]


def accuracy_against_eps(board: Board, prefix: str) -> list[Figure]:
    """One figure for each norm: worst-case accuracy against the radius, with the clean accuracy at radius 0.

    Args:
        board: the models to draw.
        prefix: what the ids start with, different for each board on the page.
    """
    norms = list(dict.fromkeys(threat.norm for threat in board.threats))
    return [_figure(board, norm, f"{prefix}-{i}-") for i, norm in enumerate(norms)]


def _mark(number: int) -> int:
    # Each round of colours starts one mark later, so 49 models differ in mark or colour.
    return (number + number // 7) % 7


def _figure(board: Board, norm: str, prefix: str) -> Figure:
    threats = [threat for threat in board.threats if threat.norm == norm]
    with axes_in(SIZE, (0.13, 0.17, 0.84, 0.79), prefix) as axes:
        lines = [_line(axes, board, model, threats, i) for i, model in enumerate(board.models)]
        _dress(axes, norm, threats, len(board.class_names))
        svg = svg_of(axes, prefix)
    title = f"{printable(norm)}: worst-case accuracy against the radius"
    return Figure(title, svg, f"{title}. {' '.join(lines)}")


def _line(axes: "Axes", board: Board, model: str, threats: list[ThreatLabel], number: int) -> str:
    clean = board.clean(model)
    points: list[tuple[float, ResultRow]] = [(0.0, clean)] if clean else []
    points += [(threat.eps, cell) for threat in threats if (cell := board.worst(model, threat))]
    points = [point for point in points if point[1].n]
    x = [eps for eps, _ in points]
    colour, mark = SERIES[number % 7], MARKERS[_mark(number)]
    low, high = [100 * cell.low for _, cell in points], [100 * cell.high for _, cell in points]
    axes.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
    y = [100 * cell.correct / cell.n for _, cell in points]
    axes.plot(x, y, color=colour, marker=mark, markersize=5, linewidth=1.6, clip_on=False)
    values = ", ".join(f"{cell.percent} at {cell.threat.eps_text if cell.threat else '0'}" for _, cell in points)
    certified = [(threat, cell) for threat in threats if (cell := board.certified(model, threat)) and cell.n]
    if not certified:
        return f"{model}: {values or 'no values'}."
    y = [100 * cell.correct / cell.n for _, cell in certified]
    axes.plot(
        [threat.eps for threat, _ in certified], y, color=colour, marker=mark, markersize=4, linewidth=1.2,
        linestyle=(0, (4, 2)), clip_on=False,
    )  # fmt: skip
    certified_values = ", ".join(f"{cell.percent} at {threat.eps_text}" for threat, cell in certified)
    return f"{model}: {values or 'no values'}; certified {certified_values}."


def _dress(axes: "Axes", norm: str, threats: list[ThreatLabel], classes: int) -> None:
    """Start the axes at 0, mark the radii that were attacked, and draw the accuracy of guessing."""
    largest = max((threat.eps for threat in threats), default=0.0) or 1.0
    axes.set_xlim(0, largest * 1.02)
    axes.set_ylim(0, 100)
    labelled: list[ThreatLabel] = []
    gap = largest * CLOSEST_TICKS
    for threat in reversed(threats):
        if threat.eps > gap and (not labelled or labelled[-1].eps - threat.eps > gap):
            labelled.append(threat)
    axes.set_xticks([0.0, *(threat.eps for threat in labelled)], ["0", *(threat.eps_text for threat in labelled)])
    axes.set_xticks([threat.eps for threat in threats], minor=True)
    axes.set_yticks(range(0, 101, 20))
    axes.set_xlabel(radius_axis(norm), parse_math=False)
    axes.set_ylabel("correct, %")
    style_axes(axes)
    if classes:
        chance = 100 / classes
        axes.axhline(chance, color=INK, linewidth=0.8, linestyle=(0, (2, 3)))
        axes.annotate(
            f"chance 1/{classes}", (0, chance), xycoords=("axes fraction", "data"), xytext=(4, 3),
            textcoords="offset points", color=INK, fontsize=8,
        )  # fmt: skip
