"""Accuracy under attack as a table in the terminal: one for each norm and radius, every number with its interval."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from robustkit.evidence.run import Run

from ..shared.words import DASH, UNKNOWN, half_width, per_image, printable
from .board import Board, boards
from .cells import ResultRow, ThreatLabel
from .certified import notes

RICH_PIPED, OURS_PIPED = 80, 100  # rich takes 80 columns for a file; our seven columns need a few more
COLUMNS = ("accuracy", "95 % interval", "k/n", "broke", "passes/image")
# What a narrow terminal loses, in this order; the interval stays to the last.
LOSES = ((), ("passes/image",), ("passes/image", "k/n"), ("passes/image", "k/n", "broke"))


def print_table(run: Run, console: Console) -> None:
    """Print `run` for a human: a table for each norm and radius, what the numbers mean, and the run's warnings."""
    board = boards([run])[0]
    with room(console):
        threats: list[ThreatLabel | None] = [*board.threats]
        for threat in threats or [None]:
            console.print(fitting(partial(_table, board, threat), COLUMNS, LOSES, console))
        for note in _notes(board, run):
            console.print(Padding(Text(note), (0, 0, 0, 1)))


@contextmanager
def room(console: Console) -> Iterator[None]:
    """A console that is no terminal and whose width nobody chose, made wide enough for the table."""
    before = console.width
    if not console.is_terminal and before == RICH_PIPED:
        console.width = OURS_PIPED
    try:
        yield
    finally:
        if console.width != before:
            console.width = before


def fitting(
    table_of: Callable[[list[str]], Table], columns: Sequence[str], loses: Iterable[Sequence[str]], console: Console
) -> Table:
    """The table with as many of its columns as the console has room for.

    Args:
        table_of: makes it with some of the columns.
        columns: all of them.
        loses: which are left out, from nothing on; the last is shown whether it fits or not.
        console: where it is to stand.
    """
    for lost in loses:
        table = table_of([name for name in columns if name not in lost])
        # Asked with room to spare: rich never measures more than it is given.
        if Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width:
            break
    return table


def _table(board: Board, threat: ThreatLabel | None, shown: list[str]) -> Table:
    several = len(board.models) > 1
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.title, table.title_justify, table.title_style = Text(_title(board, threat)), "left", "bold"
    if several:
        table.add_column("model", overflow="fold", max_width=28)
    table.add_column("attack", overflow="fold", max_width=28)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for model in board.models:
        for i, (name, texts, style) in enumerate(_lines(board, model, threat)):
            first = [Text(model if i == 0 else "")] if several else []
            table.add_row(*first, Text(name), *(Text(texts.get(column, "")) for column in shown), style=style)
        table.add_section()
    return table


def _title(board: Board, threat: ThreatLabel | None) -> str:
    images = board.images
    model = board.models if len(board.models) == 1 else []
    parts = [*model, f"{images.dataset} {images.split}".strip(), f"n={images.n}", *([str(threat)] if threat else [])]
    return " · ".join(parts)


def _lines(board: Board, model: str, threat: ThreatLabel | None) -> Iterator[tuple[str, dict[str, str], str]]:
    clean = board.clean(model)
    if clean:
        yield "clean", _texts(clean), ""
    if threat is None:
        return
    for row in board.placed(model, threat):
        if row.ensemble:
            # A member saw only what the members before it left: an accuracy of its own would mislead.
            kept = {name: text for name, text in _texts(row.cell).items() if name in ("broke", "passes/image")}
            yield f"  {row.name}", kept, "dim"
        else:
            yield row.name, _texts(row.cell), ""
    worst = board.worst(model, threat)
    if worst:
        yield "worst-case", _texts(worst), "bold"
    certified = board.certified(model, threat)
    if certified:
        yield "certified", _texts(certified), "bold"


def _texts(cell: ResultRow) -> dict[str, str]:
    """The columns of one line; signs as ASCII, because a pipe may not know others."""
    bounds = cell.interval.replace("≤", "<=").replace("≥", ">=").replace(DASH, "-")
    texts = {
        "accuracy": cell.percent.replace(UNKNOWN, "-"),
        "95 % interval": f"({bounds})" if "=" in bounds else bounds,
        "k/n": cell.count,
    }
    if cell.role not in ("clean", "certified"):
        texts["broke"] = f"{cell.broken} of {cell.attacked}"
    if cell.forwards or cell.backwards:
        forwards, backwards = (per_image(passes, cell.images) for passes in (cell.forwards, cell.backwards))
        texts["passes/image"] = f"{forwards}+{backwards}"
    return texts


def _notes(board: Board, run: Run) -> Iterator[str]:
    n = board.images.n
    for state in board.states:
        yield f"Unfinished: {state.done} of {state.planned} images; numbers under attack are partial."
    if board.threats:
        yield "worst-case: an upper bound on robust accuracy under these attacks; a stronger attack can only lower it."
        yield from notes(board)
        yield "passes/image: forwards+backwards for each image attacked."
    if board.transferred:
        yield "ATTACK@MODEL: transferred. That model was attacked; the one in the table only judged the last points."
    if n:
        yield f"Resolution: differences below about {half_width(n)} points are not visible at n={n}."
    for warning in run.manifest["warnings"]:
        yield f"Warning: {printable(str(warning))}"
