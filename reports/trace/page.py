"""The page of a trace: where a perturbation grows, in a table, in figures and in pictures.

One HTML file that loads nothing. Names of models, layers and classes are not trusted: they are escaped.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from robustkit.host.files import write_text
from robustkit.tracing import Album, CallTrace, Traced
from robustkit.tracing.traced import spread_of

from ..shared.csv import write_frame
from ..shared.figures import Legend
from ..shared.layer_names import LayerName, common_prefix, table_names
from ..shared.rendering import render, styles
from ..shared.words import DASH, TIMES, percent, printable
from . import figures as trace_figures
from .pictures import number, sheets

LARGE = 64  # pixels of a side: smaller images are enlarged pixel by pixel


@dataclass(frozen=True)
class TraceContext:
    """What was traced, for the head of the page."""

    dataset: str = ""
    class_names: tuple[str, ...] = ()
    command: str = ""


class Value(NamedTuple):
    """A median, and the quartiles around it."""

    median: str
    quartiles: str


class TraceRow(NamedTuple):
    """One call."""

    order: int
    name: LayerName
    kind: str
    shape: str
    steepest: bool
    bars: list[tuple[Legend, float]]  # the relative change as a share of the largest, for each group
    relative: list[Value]  # one for each group
    gain: list[Value]
    share: list[Value]
    cosine: Value
    flips: Value
    cka: str


class LookRow(NamedTuple):
    """Similarity of the Grad-CAM maps before and after the attack, over a group of images."""

    group: str
    aim: str
    n: int
    correlation: Value
    overlap: Value


class TraceHeadline(NamedTuple):
    """The numbers on top."""

    followed: int
    broken: int
    share: str
    clean_wrong: int
    first: str
    last: str
    factor: str
    steepest: list[tuple[str, str, str]]  # name, kind, gain


def write_trace(traced: Traced, album: Album | None, folder: Path, about: TraceContext | None = None) -> None:
    """Write trace.html, trace.csv and trace.json of a trace into `folder`, each replaced in one step.

    Raises:
        UserError: `folder` cannot be written to.
    """
    write_frame(folder / "trace.csv", traced.to_frame())
    write_text(folder / "trace.json", traced.to_json() + "\n")
    write_text(folder / "trace.html", page(traced, album, about or TraceContext()))


def page(traced: Traced, album: Album | None, about: TraceContext) -> str:
    """The page of a trace as HTML."""
    groups = traced.groups
    return render(
        "trace/trace.html.jinja",
        style=styles("shared/style.css", "trace/trace.css"),
        model=printable(traced.model),
        about=about,
        traced=traced,
        threat=f"{traced.origin.norm} {traced.origin.eps_text}".strip(),
        attack=printable(traced.origin.attack),
        verdict=_headline(traced),
        groups=[(group, int(traced.members(group).sum())) for group in groups],
        legend=trace_figures.legend(traced),
        figures=trace_figures.charts(traced, "t"),
        rows=_rows(traced, groups),
        prefix=common_prefix([printable(call.name) for call in traced.shown_calls]),
        looks=_looks(traced, album, groups),
        focus=None if album is None or album.focus is None else printable(album.focus.name),
        sheets=[] if album is None else sheets(album, about.class_names),
        large=max(traced.pairs.x.shape[2:], default=0) > LARGE,
        rule="" if album is None else album.rule,
        moot=len(traced.calls) - len(traced.shown_calls),
        unseen=[(printable(name), reason) for name, reason in traced.unseen.items()],
        data=json.loads(traced.to_json()),
    )


def _headline(traced: Traced) -> TraceHeadline:
    group = "broken" if bool(traced.pairs.broken.any()) else "all"
    first, last = (traced.spread(call, "relative", group).median for call in (traced.calls[0], traced.calls[-1]))
    broken = int(traced.pairs.broken.sum())
    return TraceHeadline(
        followed=len(traced.pairs),
        broken=broken,
        share=percent(broken, len(traced.pairs)),
        clean_wrong=traced.origin.clean_wrong,
        first=_short(first),
        last=_short(last),
        factor=_short(last / first) if first else DASH,
        steepest=[(printable(call.name), call.kind, _short(traced.spread(call, "gain", group).median))
                  for call in traced.steepest],
    )  # fmt: skip


def _rows(traced: Traced, groups: Sequence[str]) -> list[TraceRow]:
    steepest = {call.order for call in traced.steepest}
    legend = trace_figures.legend(traced)
    medians = {
        (call.order, group): traced.spread(call, "relative", group).median for call in traced.calls for group in groups
    }
    largest = max((value for value in medians.values() if math.isfinite(value)), default=0.0) or 1.0

    def bar(call: CallTrace, group: str) -> float:
        value = medians[call.order, group]
        return 0.0 if math.isnan(value) else min(1.0, value / largest)

    short_names = table_names([printable(call.name) for call in traced.shown_calls])
    return [
        TraceRow(
            order=call.order, name=short, kind=call.kind, shape=f" {TIMES} ".join(map(str, call.shape)),
            steepest=call.order in steepest,
            bars=[(line, bar(call, group)) for line, group in zip(legend, groups, strict=True)],
            relative=[_value(traced, call, "relative", group) for group in groups],
            gain=[_value(traced, call, "gain", group) for group in groups],
            share=[_value(traced, call, "margin_share", group) for group in groups],
            cosine=_value(traced, call, "cosine"),
            flips=_value(traced, call, "flips"), cka=_short(traced.cka(call)),
        )
        for call, short in zip(traced.shown_calls, short_names, strict=True)
    ]  # fmt: skip


def _value(traced: Traced, call: CallTrace, measure: str, group: str = "all") -> Value:
    spread = traced.spread(call, measure, group)
    quartiles = "" if math.isnan(spread.median) else f"{_short(spread.low, 2)}{DASH}{_short(spread.high, 2)}"
    return Value(_short(spread.median), quartiles)


def _looks(traced: Traced, album: Album | None, groups: Sequence[str]) -> list[LookRow]:
    if album is None or album.focus is None:
        return []
    rows = []
    for group in groups:
        members = traced.members(group)
        for aim, maps in album.focus.aims.items():
            if aim == "predicted" and not bool(traced.pairs.broken[members].any()):
                continue  # the prediction is the true class
            values = []
            for column in (maps.correlation, maps.overlap):
                spread = spread_of(column[members])
                values.append(Value(number(spread.median), f"{number(spread.low)}{DASH}{number(spread.high)}"))
            rows.append(LookRow(group, aim, int(members.sum()), *values))
    return rows


def _short(value: float, digits: int = 3) -> str:
    """A number with a few digits; a dash for NaN."""
    if math.isnan(value):
        return DASH
    if math.isinf(value):
        return "∞"
    # Trailing zeros stay, so that the digits of a column are aligned.
    return f"{value:#.{digits}g}".rstrip(".") if abs(value) < 1000 else f"{value:,.0f}"
