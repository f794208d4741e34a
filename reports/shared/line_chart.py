"""A line chart that is as wide as the page, with the name of each line at its end; with a legend if a name is too long.

Drawn twice, for wide and for narrow screens, because the letters of a scaled chart would be too small on a phone.
"""

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from .figures import Legend

_LINE_HEIGHT: Final = 17.0  # of a label
_COLOURS: Final = 7


class ChartPoint(NamedTuple):
    """A value with its 95 % interval, in percent, and what a reader sees when pointing at it."""

    x: float
    y: float
    low: float
    high: float
    text: str


class ChartLine(NamedTuple):
    """One line; `number` chooses its colour."""

    name: str
    end: str  # what its label says beside the name
    number: int
    points: Sequence[ChartPoint]
    dashed: bool = False
    steps: bool = False  # level until the next point; its interval is a band


class ChartTick(NamedTuple):
    """A marked value of the horizontal axis; without a text only a tick."""

    x: float
    text: str


class LineChart(NamedTuple):
    """What a chart shows; the vertical axis is always 0 to 100 %."""

    title: str
    text: str  # the content in words
    x_label: str
    largest: float  # end of the horizontal axis
    ticks: Sequence[ChartTick]
    lines: Sequence[ChartLine]
    level: float | None = None  # a dotted horizontal line
    level_text: str = ""


class ChartFrame(NamedTuple):
    """The size of a drawing in pixels."""

    name: str
    width: float
    height: float
    left: float
    right: float  # room for labels
    letters: int  # of a name
    most_ticks: int

    @property
    def bottom(self) -> float:
        """The vertical place of 0 %."""
        return self.height - 44

    @property
    def top(self) -> float:
        """The vertical place of 100 %."""
        return 12.0


WIDE: Final = ChartFrame("wide", 1080, 350, 46, 250, 26, 12)
NARROW: Final = ChartFrame("narrow", 350, 280, 42, 128, 10, 4)
_LETTER: Final = {"wide": 7.6, "narrow": 6.6}  # width in pixels


class Mark(NamedTuple):
    """A point with its interval, in pixels."""

    x: float
    y: float
    low: float
    high: float
    text: str


class DrawnLine(NamedTuple):
    """A line in pixels; `label_y` is None where there was no room for the label."""

    colour: int
    dashed: bool
    path: str
    band: str
    marks: list[Mark]  # of a line of steps only shown where a reader points
    name: str
    end: str
    label_x: float
    label_y: float | None
    end_y: float
    steps: bool


class Drawing(NamedTuple):
    """A chart in pixels, ready for the template."""

    frame: ChartFrame
    lines: list[DrawnLine]
    legend: list[Legend]  # of all lines, if a name has no room at the end of its line; empty otherwise
    ticks: list[ChartTick]
    small_ticks: list[float]
    rules: list[tuple[float, str]]
    level_y: float | None


def drawings(chart: LineChart) -> list[Drawing]:
    """The chart for wide and for narrow screens."""
    prefix = shared_prefix([line.name for line in chart.lines])
    chart = chart._replace(lines=[line._replace(name=line.name.removeprefix(prefix)) for line in chart.lines])
    return [_drawing(chart, frame) for frame in (WIDE, NARROW)]


def round_ticks(largest: float, most: int = 5) -> list[ChartTick]:
    """Ticks from 0 at multiples of 1, 2 or 5 times a power of ten, at most `most` beside 0."""
    power = 10.0 ** math.floor(math.log10(largest / most))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * most >= largest * (1 - 1e-9))
    return [ChartTick(place * step, f"{place * step:.6g}") for place in range(math.floor(largest / step + 1e-9) + 1)]


def shared_prefix(names: Sequence[str]) -> str:
    """What several names have in common up to their last common dot or slash: "models." of "models.a", "models.b"."""
    if len(set(names)) < 2:
        return ""
    same = "".join(letters[0] for letters in takewhile(lambda each: len(set(each)) == 1, zip(*names, strict=False)))
    return same[: max(same.rfind("."), same.rfind("/")) + 1]


def _fitted(chart: LineChart, frame: ChartFrame) -> ChartFrame:
    """The frame with as much room as its labels need, at most what it has."""
    longest = max((len(shortened_name(line.name, frame.letters)) + len(line.end) for line in chart.lines), default=0)
    return frame._replace(right=min(frame.right, 22 + _LETTER[frame.name] * longest))


def shortened_name(name: str, letters: int) -> str:
    """A name with its middle left out, if it is longer than so many letters."""
    if len(name) <= letters:
        return name
    end = max(1, (letters - 1) // 3)
    return f"{name[: letters - 1 - end]}\N{HORIZONTAL ELLIPSIS}{name[-end:]}"


def _drawing(chart: LineChart, frame: ChartFrame) -> Drawing:
    legend = _legend(chart, frame)
    if legend:
        chart = chart._replace(lines=[line._replace(name="") for line in chart.lines])
    frame = _fitted(chart, frame)
    lines = [_line(chart, frame, line, place) for place, line in enumerate(chart.lines)]
    rules = [(_y(frame, value), f"{value}{' %' if value == 100 else ''}") for value in range(0, 101, 20)]
    return Drawing(
        frame, _labelled(lines, frame), legend, _ticks(chart, frame),
        [_x(chart, frame, tick.x) for tick in chart.ticks], rules,
        None if chart.level is None else _y(frame, chart.level),
    )  # fmt: skip


def _legend(chart: LineChart, frame: ChartFrame) -> list[Legend]:
    """All lines, if a name is too long for the frame; none if two lines would look the same in a legend."""
    lines = [line for line in chart.lines if line.points]
    looks = {(line.number % _COLOURS, line.dashed) for line in lines}
    if len(looks) < len(lines) or all(len(line.name) <= frame.letters for line in lines):
        return []
    return [Legend(line.name, "- -" if line.dashed else "\N{BLACK CIRCLE}", line.number % _COLOURS) for line in lines]


def _line(chart: LineChart, frame: ChartFrame, line: ChartLine, place: int) -> DrawnLine:
    # Neighbouring lines stand some pixels beside each other, so that their intervals can be seen.
    shift = 0.0 if line.steps else 3.0 * (place - (len(chart.lines) - 1) / 2) * min(1.0, 6 / max(1, len(chart.lines)))
    marks = [_mark(chart, frame, point, shift) for point in line.points]
    ends = marks[-1].y if marks else 0.0
    colour = line.number % _COLOURS
    name, x = shortened_name(line.name, frame.letters), frame.width - frame.right + 12
    if line.steps:
        return DrawnLine(colour, line.dashed, _steps(marks), _band(marks), marks, name, line.end, x, ends, ends, True)
    path = " ".join(f"{'M' if i == 0 else 'L'}{mark.x:.1f} {mark.y:.1f}" for i, mark in enumerate(marks))
    return DrawnLine(colour, line.dashed, path, "", marks, name, line.end, x, ends, ends, False)


def _mark(chart: LineChart, frame: ChartFrame, point: ChartPoint, shift: float) -> Mark:
    # At 0 nothing may lie beyond the axis.
    x = _x(chart, frame, point.x) + (shift if point.x else max(0.0, shift))
    return Mark(x, _y(frame, point.y), _y(frame, point.low), _y(frame, point.high), point.text)


def _steps(marks: Sequence[Mark]) -> str:
    return _staircase([(mark.x, mark.y) for mark in marks])


def _band(marks: Sequence[Mark]) -> str:
    if not marks:
        return ""
    upper = _staircase([(mark.x, mark.high) for mark in marks])
    back = " ".join(f"V{mark.low:.1f} H{mark.x:.1f}" for mark in reversed(marks[:-1]))
    return f"{upper} V{marks[-1].low:.1f} {back} Z"


def _staircase(corners: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"M{x:.1f} {y:.1f}" if i == 0 else f"H{x:.1f} V{y:.1f}" for i, (x, y) in enumerate(corners))


def _labelled(lines: list[DrawnLine], frame: ChartFrame) -> list[DrawnLine]:
    """The labels moved apart, as many as there is room for, those of the first lines."""
    room = int((frame.bottom - frame.top) / _LINE_HEIGHT)
    shown = sorted((i for i, line in enumerate(lines) if line.path), key=lambda i: (lines[i].end_y, i))[:room]
    places: dict[int, float] = {}
    for i in shown:
        places[i] = max(lines[i].end_y, max(places.values(), default=-_LINE_HEIGHT) + _LINE_HEIGHT)
    lowest = frame.bottom
    for i in reversed(shown):
        places[i] = min(places[i], lowest)
        lowest = places[i] - _LINE_HEIGHT
    return [line._replace(label_y=places.get(i)) for i, line in enumerate(lines)]


def _ticks(chart: LineChart, frame: ChartFrame) -> list[ChartTick]:
    """The ticks with a label, the largest first, as many as do not touch."""
    gap = (frame.width - frame.left - frame.right) / frame.most_ticks
    labelled: list[ChartTick] = []
    for tick in sorted(chart.ticks, key=lambda tick: -tick.x):
        x = _x(chart, frame, tick.x)
        if tick.text and (not labelled or labelled[-1].x - x >= gap) and (tick.x == 0 or x - frame.left >= gap):
            labelled.append(ChartTick(x, tick.text))
    return labelled


def _x(chart: LineChart, frame: ChartFrame, value: float) -> float:
    return frame.left + (frame.width - frame.left - frame.right) * value / (chart.largest or 1.0)


def _y(frame: ChartFrame, percent: float) -> float:
    return frame.bottom + (frame.top - frame.bottom) * percent / 100
