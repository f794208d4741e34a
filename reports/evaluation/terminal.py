"""Accuracy under attack as a table in the terminal: one for each norm and radius, every number with its interval."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from robustkit.evidence.run import Run

from ..shared.terminal import OptionalColumns, dropped_together, empty_table, plain_text, print_notes, wide_enough
from ..shared.words import UNKNOWN, in_ascii, per_image, printable
from . import audit, bisection, randomized, rejection, smoothing
from .board import Board, boards
from .checks_terminal import print_checks, print_unreliable
from .closing import closing_table, is_needed
from .corruptions import corruption_notes, has_corruptions, print_corruptions
from .distances import NOTE, DistanceBlock, distance_blocks
from .methods import joined, resolution, unions
from .result_rows import ResultRow, ThreatLabel

COLUMNS = ("accuracy", "95 % interval", "k/n", "broke", "passes/image")
OF_DISTANCES = ("median distance", "95 % interval", "found", "passes/image")
OF_RANDOMIZED = ("one draw", "one draw, 95 %")
MOST_ROWS = 60  # of a run that is printed whole in Python
# What a narrow terminal leaves out of all tables, in this order; the interval is never left out.
DROPS = ((), ("passes/image",), ("passes/image", "k/n"), ("passes/image", "k/n", "broke"))


def print_table(run: Run, console: Console) -> None:
    """Print `run` for a human: a table for each norm and radius, what the numbers mean, and the run's warnings."""
    print_tables([run], console)


def print_tables(runs: Sequence[Run], console: Console) -> None:
    """Print several runs; those on the same images share their tables."""
    with wide_enough(console):
        every = boards(runs)
        dropped = dropped_together((each for board in every for each in _tables(board)), DROPS, console)
        for board in every:
            print_unreliable(board, console)
            tables = [each.without(dropped) for each in _tables(board)]
            for each in tables:
                console.print(each.table)
            if is_needed(board):
                console.print(closing_table(board, console))
            for run in board.runs:
                print_corruptions(run, console)
            print_notes(console, _notes(board, {name for each in tables for name in each.shown}))
            print_checks(board, console)


def table_text(run: Run) -> str:
    """What `print_table` prints, without colours, as wide as the terminal if there is one.

    Of a run with many tables only the summary: the rest stands in `run.results` and on the page.
    """
    if len(run.results) <= MOST_ROWS or not all(is_needed(board) for board in boards([run])):
        return plain_text(partial(print_table, run))
    return plain_text(partial(_print_summary, run))


def _print_summary(run: Run, console: Console) -> None:
    with wide_enough(console):
        for board in boards([run]):
            console.print(closing_table(board, console))
            print_notes(console, [*_notes(board, set()), f"All {len(run.results)} rows: .results, and report.html."])


def _tables(board: Board) -> Iterator[OptionalColumns]:
    """A table for each radius, then one for each norm in which distances were looked for."""
    columns = (*COLUMNS, *OF_RANDOMIZED) if board.randomized else COLUMNS
    threats: list[ThreatLabel | None] = [*board.threats]
    for threat in threats or ([] if board.minimums else [None]):
        yield OptionalColumns(partial(_table, board, threat), columns)
    for block in distance_blocks(board):
        yield OptionalColumns(partial(_distances, board, block), OF_DISTANCES)


def _table(board: Board, threat: ThreatLabel | None, shown: list[str]) -> Table:
    several = len(board.models) > 1
    table = empty_table(_title(board, threat))
    if several:
        table.add_column("model", overflow="fold", max_width=28)
    table.add_column("attack", overflow="fold", max_width=28)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for model in board.models:
        for i, (name, texts, style) in enumerate(_lines(board, model, threat)):
            first = [Text(printable(model) if i == 0 else "")] if several else []
            table.add_row(
                *first, Text(printable(name)), *(Text(texts.get(column, "")) for column in shown), style=style
            )
        table.add_section()
    return table


def _distances(board: Board, block: DistanceBlock, shown: list[str]) -> Table:
    table = empty_table([*_title(board, None), f"{block.norm} minimum"])
    several = len(board.models) > 1
    for name in (*(["model"] if several else []), "attack"):
        table.add_column(name, overflow="fold", max_width=28)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for row in block.rows:
        texts = {
            "median distance": row.cell.distance_text,
            "95 % interval": in_ascii(row.cell.distance_interval),
            "found": row.found,
            "passes/image": row.passes,
        }
        first = [Text(printable(row.model))] if several else []
        table.add_row(*first, Text(printable(row.attack)), *(Text(texts[name]) for name in shown))
    return table


def _title(board: Board, threat: ThreatLabel | None) -> list[str]:
    images = board.images
    model = board.models if len(board.models) == 1 else []
    return [*model, f"{images.dataset} {images.split}".strip(), f"n={images.n}", *([str(threat)] if threat else [])]


def _lines(board: Board, model: str, threat: ThreatLabel | None) -> Iterator[tuple[str, dict[str, str], str]]:
    clean = board.clean(model)
    if clean:
        yield "clean", _texts(clean), ""
    if threat is None:
        return
    for row in board.attack_rows(model, threat):
        if row.ensemble or row.cell.role == "audit":
            # These attack only images that other attacks left: an accuracy of their own would mislead.
            shown = {name: text for name, text in _texts(row.cell).items() if name in ("broke", "passes/image")}
            yield f"  {row.name}" if row.ensemble else row.name, shown, "dim"
        else:
            yield row.name, _texts(row.cell), ""
    worst = board.worst(model, threat)
    if worst:
        yield "worst-case", _texts(worst), "bold"
    certified = board.certified(model, threat)
    if certified:
        yield "certified", _texts(certified), "bold"


def _texts(cell: ResultRow) -> dict[str, str]:
    """The columns of one line; signs as ASCII, because the encoding of a pipe may have no others."""
    texts = {
        "accuracy": cell.percent.replace(UNKNOWN, "-").replace("≤", "<="),
        "95 % interval": _bounds(cell.interval),
        "k/n": cell.count,
        "one draw": cell.one_draw_percent,
        "one draw, 95 %": _bounds(cell.one_draw_interval),
    }
    if cell.role not in ("clean", "certified"):
        texts["broke"] = f"{cell.broken} of {cell.attacked}"
    if cell.forwards or cell.backwards:
        forwards, backwards = (per_image(passes, cell.images) for passes in (cell.forwards, cell.backwards))
        texts["passes/image"] = f"{forwards}+{backwards}"
    return texts


def _bounds(interval: str) -> str:
    bounds = in_ascii(interval)
    return f"({bounds})" if "=" in bounds else bounds


def _notes(board: Board, shown: AbstractSet[str]) -> Iterator[str]:
    """What the numbers mean; a column that was left out takes its note along."""
    for state in board.states:
        yield state.sentence
    if any(row.role == "worst-case" for row in board.rows if row.threat in board.threats):
        yield "worst-case: an upper bound on robust accuracy under these attacks; a stronger attack can only lower it."
    if board.threats:
        yield from smoothing.notes(board)
        yield from randomized.notes(board)
        yield from rejection.notes(board)
        yield from audit.notes(board)
        if "passes/image" in shown:
            yield "passes/image: forwards+backwards for each image attacked."
    if board.minimums:
        yield NOTE
        yield from bisection.notes(board)
    if board.transferred:
        yield "ATTACK@MODEL: transfer. The attack queried MODEL; the model of the table only classified last points."
    yield from dict.fromkeys(note for run in board.runs if has_corruptions(run) for note in corruption_notes(run))
    yield from unions(board)
    yield from joined(board)
    yield from filter(None, [resolution(board)])
    for warning in dict.fromkeys(warning for run in board.runs for warning in run.manifest["warnings"]):
        yield f"Warning: {printable(str(warning))}"
