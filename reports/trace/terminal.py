"""A trace as a table in the terminal: the calls in the order of execution, marked where the perturbation grows most."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from robustkit.tracing import CallTrace, Traced

from ..shared.terminal import empty_table, fitting, print_notes, wide_enough
from ..shared.words import percent, printable

COLUMNS: Final = ("kind", "x input", "cosine", "CKA", "flips", "margin")
# What a narrow terminal leaves out, in this order; the change and its layer are never left out.
DROPS: Final = (
    (),
    ("kind",),
    ("kind", "cosine"),
    ("kind", "cosine", "flips"),
    ("kind", "cosine", "flips", "CKA", "margin"),
)
BAR: Final = 8  # cells
_MEANINGS: Final = {
    "cosine": "cosine: of the angle between the clean and the perturbed output.",
    "CKA": "CKA: similarity of all clean and all perturbed outputs; 1 is the same up to rotation and scale.",
    "flips": "flips: share of values above zero in only one of the two outputs; in the row of a ReLU, of its input.",
    "margin": "margin: its change as the layer's gradient on the clean image predicts it, over its true change.",
}


def print_trace(traced: Traced, console: Console) -> None:
    """Print a trace for a human: a row per call, and what the columns mean."""
    with wide_enough(console):
        table, shown = fitting(partial(_table, traced), COLUMNS, DROPS, console)
        console.print(table)
        print_notes(console, _notes(traced, shown))


def _table(traced: Traced, shown: Sequence[str]) -> Table:
    groups = traced.groups
    table = empty_table(_title(traced))
    table.add_column("#", justify="right")
    table.add_column("layer", overflow="fold", max_width=34)
    if "kind" in shown:
        table.add_column("kind", overflow="fold", max_width=18, style="dim")
    for group in groups:
        table.add_column("change" if group == "all" else group, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for name in (name for name in shown if name != "kind"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    largest = max((value for call in traced.calls if math.isfinite(value := _change(traced, call))), default=0.0)
    steepest = [call.order for call in traced.steepest]
    for call in traced.shown_calls:
        texts = _texts(traced, call)
        changes = [_number(traced.spread(call, "relative", group).median) for group in groups]
        full = _change(traced, call) / largest if largest else 0.0
        mark = "" if call.order not in steepest else "<- most" if call.order == steepest[0] else "<-"
        table.add_row(
            str(call.order), Text(printable(call.name)), *([Text(call.kind)] if "kind" in shown else []), *changes,
            Text("#" * round(BAR * min(1.0, full)) if math.isfinite(full) else "", style="dim"),
            *(texts[name] for name in shown if name != "kind"), mark, style="bold" if mark else "",
        )  # fmt: skip
    return table


def _change(traced: Traced, call: CallTrace) -> float:
    return traced.spread(call, "relative", "broken" if bool(traced.pairs.broken.any()) else "all").median


def _texts(traced: Traced, call: CallTrace) -> dict[str, str]:
    """Signs as ASCII, because a pipe may not know others."""
    group = traced.groups[0]
    flips = traced.spread(call, "flips").median
    return {
        "x input": _number(traced.spread(call, "gain", group).median),
        "cosine": _number(traced.spread(call, "cosine").median),
        "CKA": _number(traced.cka(call)),
        "flips": "-" if math.isnan(flips) else f"{100 * flips:.1f} %",
        "margin": _number(traced.spread(call, "margin_share", group).median),
    }


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "inf" if math.isinf(value) else f"{value:.3g}"


def _title(traced: Traced) -> list[str]:
    origin = traced.origin
    threat = [f"{origin.norm} {origin.eps_text}"] if origin.norm else []
    return [printable(traced.model), printable(origin.attack), *threat, f"n={len(traced.pairs)}"]


def _notes(traced: Traced, shown: Sequence[str]) -> Iterator[str]:
    n, broken = len(traced.pairs), int(traced.pairs.broken.sum())
    wrong = traced.origin.clean_wrong
    left_out = f", {wrong} clean error{'s' * (wrong > 1)} left out" if wrong else ""
    yield f"The attack broke {broken} of {n} images ({percent(broken, n)}){left_out}. Medians over images."
    groups = len(traced.groups) > 1
    of = ", of images that the attack broke, and of the others" if groups else ""
    columns = "broken, robust" if groups else "change"
    yield f"{columns}: relative change of the output from a (clean) to b, ||b - a|| / ||a||{of}."
    yield "x input: the same, divided by that of the layer's own input."
    yield from (note for name, note in _MEANINGS.items() if name in shown)
    if traced.steepest:
        yield "<- most: the largest x input above 1, where the perturbation grows most; <-: the next ones."
    moot = len(traced.calls) - len(traced.shown_calls)
    if moot:
        yield f"Not shown, but in trace.csv: calls that return their input, as Dropout and Flatten do ({moot})."
    if traced.unseen:
        names = ", ".join(printable(name) for name in list(traced.unseen)[:3])
        yield f"No numbers for {len(traced.unseen)} layers ({names}{', ...' if len(traced.unseen) > 3 else ''})."
