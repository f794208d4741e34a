"""What each attack cost on each model, over all threats: images, passes and seconds; and requests to servers.

An image that a smaller radius broke already is not attacked again, so it does not count as attacked here.
"""

from typing import NamedTuple

from ..shared.words import UNKNOWN, per_image, printable
from .board import Board
from .result_rows import OrderedRow, ResultRow, ThreatLabel


class CostRow(NamedTuple):
    """Passes of an attack, over all threats."""

    name: str
    member: bool
    images: int
    forwards: int
    backwards: int
    passes: str
    seconds: str


class CostBlock(NamedTuple):
    """Passes of each attack on one model."""

    model: str
    rows: list[CostRow]
    seconds: str


class RequestRow(NamedTuple):
    """Requests to one server, and how many of them it answered."""

    model: str
    sent: int
    answered: int


def requests(board: Board) -> list[RequestRow]:
    """The requests to each server, summed over the runs, which keep one ledger each; none without a server."""
    counts: dict[str, RequestRow] = {}
    for run, names in zip(board.runs, board.names, strict=True):
        for name, count in run.manifest.get("requests", {}).items():
            model = names.get(printable(name), printable(name))  # a surrogate is no model of the board
            before = counts.get(model, RequestRow(model, 0, 0))
            counts[model] = RequestRow(model, before.sent + count["sent"], before.answered + count["answered"])
    return list(counts.values())


def cost_blocks(board: Board) -> list[CostBlock]:
    """Passes of each attack, a block for each model, summed over the threats."""
    return [_block(board, model) for model in board.models]


def attacked_images(board: Board, cell: ResultRow) -> int:
    """How many images an attack spent passes on; all of them in the clean row."""
    if cell.role == "clean" or cell.threat is None:
        return cell.n
    if not cell.forwards and not cell.backwards:
        return 0
    spent = board.verdicts.spent(cell.model, cell.threat).get(cell.attack)
    return cell.attacked if spent is None else min(spent, cell.attacked)


def duration(seconds: float) -> str:
    """Seconds as "0.4 s", "12 s", "3 min" or "2.5 h"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 99.5 * 60 else f"{seconds / 3600:.1f} h"


def _block(board: Board, model: str) -> CostBlock:
    clean = board.clean(model)
    cells: dict[tuple[str, str | None], list[ResultRow]] = {("clean", None): [clean]} if clean else {}
    for threat in (*board.threats, *board.minimums):
        for row in board.attack_rows(model, threat):
            cells.setdefault(_key(row), []).append(row.cell)
    seconds = _seconds(board, model)
    rows = [_row(board, name, ensemble, own, seconds) for (name, ensemble), own in cells.items()]
    return CostBlock(model, rows, duration(sum(seconds.values())) if seconds else UNKNOWN)


def _key(row: OrderedRow) -> tuple[str, str | None]:
    return row.name, row.ensemble


def _row(board: Board, name: str, ensemble: str | None, cells: list[ResultRow], seconds: dict[str, float]) -> CostRow:
    images = sum(attacked_images(board, cell) for cell in cells)
    forwards, backwards = sum(cell.forwards for cell in cells), sum(cell.backwards for cell in cells)
    stages = [_stage(cell.threat, cell.attack) for cell in cells]
    known = [value for stage in stages for key, value in seconds.items() if key == stage or key.startswith(f"{stage}/")]
    passes = per_image(forwards + backwards, images)
    spent = duration(sum(known)) if known else UNKNOWN
    return CostRow(name, ensemble is not None, images, forwards, backwards, passes, spent)


def _stage(threat: ThreatLabel | None, attack: str) -> str:
    return f"{threat} {attack}" if threat else "clean"


def _seconds(board: Board, model: str) -> dict[str, float]:
    """Seconds of each stage of a model, by "clean" or "Linf 0.1 pgd", over the runs that attacked it."""
    spent: dict[str, float] = {}
    for run, names in zip(board.runs, board.names, strict=True):
        for name in (name for name, shown in names.items() if shown == model):
            for stage, seconds in run.manifest["seconds"].items():
                if str(stage).startswith(f"{name} "):
                    key = str(stage)[len(name) + 1 :]
                    spent[key] = spent.get(key, 0.0) + float(seconds)
    return spent
