"""Sentences about attacks that looked for the nearest adversarial example by bisection."""

from robustkit.engine.bisection import precision

from ..shared.words import printable
from .board import Board


def notes(board: Board) -> list[str]:
    """The sentence below a table of distances; none where no attack needed it."""
    radii = {name: count for run in board.runs for name, count in run.manifest.get("bisected", {}).items()}
    if not radii:
        return []
    exact = [100 * precision(count) for count in (max(radii.values()), min(radii.values()))]
    most = f"{exact[1]:.2g} %" if exact[0] == exact[1] else f"{exact[0]:.2g} to {exact[1]:.2g} %"
    return [
        f"by bisection: {', '.join(map(printable, radii))}. Such an attack needs a radius; it was run on each image at "
        f"up to {max(radii.values())} radii; the last two are {most} apart. All of their passes are counted."
    ]


def methods(board: Board) -> str:
    """The same for the methods paragraph."""
    return "".join(f" Distances {sentence}" for sentence in notes(board))
