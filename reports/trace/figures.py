"""Line charts of a trace: one measure along the depth of the network, broken against robust images."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from robustkit.tracing import Traced

from ..shared.figures import INK, MARKERS, MARKS, SERIES, Figure, Legend, add_hover_texts, axes_in, style_axes, svg_of
from ..shared.words import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE: Final = (4.4, 2.75)  # inches of 72 units: letters of 9 units are 10 pixels on a phone
MAIN_SIZE: Final = (9.6, 3.4)  # of the first chart on a wide screen
CLOSEST: Final = 0.14  # smallest gap between the names of two stages, as a share of the axis
COLOUR: Final = {"all": 0, "broken": 1, "robust": 0}
WIDE: Final = 300.0  # an axis that spans a larger ratio has labels at powers of ten only
WIDEST: Final = 11  # letters shown of a stage's name


class TraceChart(NamedTuple):
    """What one figure shows."""

    measure: str
    title: str
    axis: str
    log: bool = False
    level: float | None = None  # a line to compare with
    stems: bool = False  # vertical lines from the level, as the values of neighbouring calls are unrelated


CHARTS: Final = (
    TraceChart("relative", "Relative change of each output", "relative change", log=True),
    TraceChart("gain", "Growth within each layer", "output / input change", level=1.0, stems=True),
    TraceChart("cosine", "Angle between clean and perturbed output", "cosine"),
    TraceChart("cka", "Similarity of clean and perturbed outputs", "CKA, unbiased"),
    TraceChart("flips", "Signs that flip", "share of values"),
    TraceChart("margin_share", "Change of the margin, as predicted", "predicted / true", level=1.0),
)


def legend(traced: Traced) -> list[Legend]:
    """Mark and colour of each group of images."""
    return [Legend(group, MARKS[i], COLOUR[group]) for i, group in enumerate(traced.groups)]


class TraceFigures(NamedTuple):
    """The relative change, for a wide screen and for a phone, and the other measures that have values."""

    wide: Figure | None
    narrow: Figure | None
    others: list[Figure]


def charts(traced: Traced, prefix: str) -> TraceFigures:
    """All figures of a trace."""
    main, *others = CHARTS
    drawn = [_figure(traced, chart, f"{prefix}-{i}-") for i, chart in enumerate(others, 1)]
    return TraceFigures(
        _figure(traced, main, f"{prefix}-w-", MAIN_SIZE),
        _figure(traced, main, f"{prefix}-0-"),
        [figure for figure in drawn if figure is not None],
    )


def stages(names: Sequence[str]) -> list[tuple[int, str]]:
    """The position of the first call of each stage; names are cut after the component that distinguishes the stages."""
    depth = 1
    deepest = max((name.count(".") + 1 for name in names), default=1)
    while depth < deepest and len({_cut(name, depth) for name in names}) < min(4, len(set(names))):
        depth += 1
    starts: list[tuple[int, str]] = []
    for place, name in enumerate(names):
        stage = _cut(name, depth)
        if stage not in [known for _, known in starts]:
            starts.append((place, stage))
    return starts


def _cut(name: str, depth: int) -> str:
    return ".".join(name.split(".")[:depth])


def _figure(traced: Traced, chart: TraceChart, prefix: str, size: tuple[float, float] = SIZE) -> Figure | None:
    # The same room for labels, in inches, whatever the size.
    left, bottom = 0.62 / size[0], 0.55 / size[1]
    with axes_in(size, (left, bottom, 0.98 - left, 0.97 - bottom), prefix) as axes:
        lines = [_line(axes, traced, chart, group, i) for i, group in enumerate(traced.groups)]
        if not any(lines):
            return None
        _dress(axes, traced, chart)
        if size == MAIN_SIZE or chart is not CHARTS[0]:  # the narrow form of the first chart is for phones
            add_hover_texts(axes, _hover_texts(traced, chart))
        svg = svg_of(axes, prefix)
    text = f"{chart.title}, along the depth of the network. {' '.join(filter(None, lines))}"
    return Figure(chart.title, svg, printable(text))


class _Point(NamedTuple):
    """A value at one call, and its quartiles."""

    order: int
    value: float
    low: float
    high: float


def _points(traced: Traced, chart: TraceChart, group: str) -> list[_Point]:
    floor = 0.0 if chart.log else -math.inf
    points = []
    for call in traced.calls:
        if chart.measure == "cka":
            value = low = high = traced.cka(call, group)
        else:
            spread = traced.spread(call, chart.measure, group)
            value, low, high = spread.median, spread.low, spread.high
        if math.isfinite(value) and value > floor:
            edges = (edge if math.isfinite(edge) and edge > floor else value for edge in (low, high))
            points.append(_Point(call.order, value, *edges))
    return points


def _hover_texts(traced: Traced, chart: TraceChart) -> Iterator[tuple[float, float, str]]:
    for group in traced.groups:
        for point in _points(traced, chart, group):
            call = traced.calls[point.order]
            yield point.order, point.value, printable(f"{call.name}, {group}: {point.value:.3g}")


def _line(axes: "Axes", traced: Traced, chart: TraceChart, group: str, number: int) -> str:
    points = _points(traced, chart, group)
    if not points:
        return ""
    x, y = [point.order for point in points], [point.value for point in points]
    colour = SERIES[COLOUR[group]]
    if chart.stems:
        shift = 0.3 * (number - 0.5 * (len(traced.groups) - 1))
        level = 0.0 if chart.level is None else chart.level
        axes.vlines([place + shift for place in x], level, y, color=colour, linewidth=2.2)
    else:
        axes.fill_between(
            x, [point.low for point in points], [point.high for point in points], color=colour, alpha=0.16, linewidth=0
        )
        # Marks on every call would merge into a band.
        step = max(1, len(x) // 12)
        axes.plot(
            x, y, color=colour, marker=MARKERS[number], markevery=step, markersize=4, linewidth=1.6, clip_on=False
        )
    first, last = traced.calls[x[0]].name, traced.calls[x[-1]].name
    return f"{group}: {y[0]:.3g} at {first}, {y[-1]:.3g} at {last}, between {min(y):.3g} and {max(y):.3g}."


def _dress(axes: "Axes", traced: Traced, chart: TraceChart) -> None:
    """Give the axes the names of the stages, the level to compare with, and lines where the perturbation grows most."""
    from matplotlib.ticker import LogLocator

    last = max(1, len(traced.calls) - 1)
    axes.set_xlim(-0.01 * last, last)
    if chart.log:
        axes.set_yscale("log")
        # Within one decade, powers of ten alone would give one label or none.
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high / low > WIDE else (1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.minorticks_off()
    elif chart.measure in ("cosine", "cka", "flips"):
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), None if chart.measure == "flips" else 1.02)
    names = _with_room(stages([call.key.layer for call in traced.calls]), len(traced.calls))
    axes.set_xticks([place for place, _ in names], [_short(stage) for _, stage in names])
    for label in axes.get_xticklabels():
        label.set_parse_math(False)
        label.set_horizontalalignment("left")
    axes.set_ylabel(chart.axis)
    axes.set_xlabel("calls in the order of execution")
    style_axes(axes)
    if chart.level is not None:
        axes.axhline(chart.level, color=INK, linewidth=0.8, linestyle=(0, (2, 3)))
    if chart.measure == "relative":
        for call in traced.steepest:
            axes.axvline(call.order, color=INK, linewidth=0.8, alpha=0.45)


def _with_room(starts: Sequence[tuple[int, str]], calls: int) -> list[tuple[int, str]]:
    """The stages whose names do not touch each other or the end of the axis; longer stages are chosen first."""
    ends = [place for place, _ in starts[1:]] + [calls]
    by_length = sorted(zip(starts, ends, strict=True), key=lambda pair: pair[0][0] - pair[1])
    room = max(1, calls - 1) * CLOSEST
    chosen: list[tuple[int, str]] = []
    for (place, stage), _ in by_length:
        near = [abs(place - other) for other in (*(known for known, _ in chosen), calls - 1 + 0.3 * room)]
        if min(near) > room:
            chosen.append((place, stage))
    return sorted(chosen)


def _short(stage: str) -> str:
    text = printable(stage)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
