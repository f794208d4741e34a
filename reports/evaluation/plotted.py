"""Accuracy against the radius as a matplotlib figure, for notebooks and papers: one chart for each norm.

matplotlib draws with its defaults, whatever the user's matplotlibrc says.
"""

from typing import TYPE_CHECKING, Final

from robustkit.errors import UserError
from robustkit.evidence.run import Run

from ..shared.figures import MARKERS
from ..shared.words import radius_axis
from .board import Board, boards
from .result_rows import ResultRow, ThreatLabel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE: Final = (4.0, 3.0)  # inches of one chart
# Okabe & Ito's colours, which colour-blind eyes tell apart.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#222222")


def plot(run: Run) -> "Figure":
    """Worst-case accuracy against the radius, with 95 % intervals; dashed what is certified.

    The figure belongs to the caller and not to pyplot: `figure.savefig("curve.pdf")` writes it.

    Raises:
        UserError: the run has no radius.
    """
    import matplotlib.style
    from matplotlib.figure import Figure

    board = boards([run])[0]
    norms = list(dict.fromkeys(threat.norm for threat in board.threats))
    if not norms:
        raise UserError("There is nothing to plot: the run has no radius; run.curve() has the accuracy by distance.")
    with matplotlib.style.context(["default", {"font.size": 9}]):
        figure = Figure(figsize=(SIZE[0] * len(norms), SIZE[1]), layout="constrained")
        for axes, norm in zip(figure.subplots(1, len(norms), squeeze=False)[0], norms, strict=True):
            _chart(axes, board, [threat for threat in board.threats if threat.norm == norm])
        handles, names = figure.axes[0].get_legend_handles_labels()
        legend = figure.legend(handles, names, loc="outside lower center", ncols=min(3, len(names)), frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)  # names of models are not trusted
    return figure


def _chart(axes: "Axes", board: Board, threats: list[ThreatLabel]) -> None:
    for number, model in enumerate(board.models):
        clean = board.clean(model)
        worst = [(threat.eps, cell) for threat in threats if (cell := board.worst(model, threat)) and cell.n]
        certified = [(threat.eps, cell) for threat in threats if (cell := board.certified(model, threat)) and cell.n]
        points = [(0.0, clean), *worst] if clean and clean.n else worst
        # A line between the clean accuracy and a single radius would invent a slope.
        _line(axes, points, number, "-" if len(threats) > 1 else "none", model.lstrip("_") or "model")
        _line(axes, certified, number, "--", "_")
    if board.class_names:
        axes.axhline(100 / len(board.class_names), color="#888888", linewidth=0.8, linestyle=":")
    axes.margins(x=0.04)
    axes.set_ylim(0, 103)
    axes.set_xticks([0.0, *(threat.eps for threat in threats)], ["0", *(threat.eps_text for threat in threats)])
    axes.set_xlabel(radius_axis(threats[0].norm), parse_math=False)
    axes.set_ylabel("correct, %")
    axes.spines[["top", "right"]].set_visible(False)


def _line(axes: "Axes", points: list[tuple[float, ResultRow]], number: int, style: str, name: str) -> None:
    """One model's points with their intervals; a name that starts with "_" is left out of the legend."""
    if not points:
        return
    y = [100 * cell.correct / cell.n for _, cell in points]
    # Rounding can put an end of an interval on the wrong side of its accuracy.
    below = [max(0.0, value - 100 * cell.low) for value, (_, cell) in zip(y, points, strict=True)]
    above = [max(0.0, 100 * cell.high - value) for value, (_, cell) in zip(y, points, strict=True)]
    axes.errorbar(
        [x for x, _ in points], y, yerr=[below, above], label=name, color=COLOURS[number % 7], linestyle=style,
        marker=MARKERS[(number + number // 7) % 7], markersize=5, linewidth=1.4, elinewidth=1, capsize=2,
    )  # fmt: skip
