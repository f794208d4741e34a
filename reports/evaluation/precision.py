"""What the intervals of a run mean that stopped when they were narrow enough."""

from collections.abc import Iterator, Mapping
from typing import Any

from robustkit.evidence.run import Run

from .board import Board


def notes(board: Board) -> Iterator[str]:
    """A sentence for each run of the board that has a precision."""
    for run in board.runs:
        identity = run.manifest["identity"]
        if "precision" not in identity:
            continue
        rows = run.results[run.results["role"].isin(["worst-case", "union"])]
        widest = float((rows["ci_high"] - rows["ci_low"]).max() / 2)
        reached = widest <= identity["precision"]["half_width"] and run.manifest["finished"] is not None
        yield (
            f"{_stop(identity, reached)} Intervals are 95 % confidence sequences for the accuracy on all "
            f"{identity['precision']['images']:,} images of the data set: they hold although the run was free to "
            f"stop when they were narrow. The widest interval under attack is +-{100 * widest:.2f} points."
            f"{_of_fixed_numbers(run)}"
        )


def methods(board: Board) -> str:
    """The sentence of the methods paragraph about intervals."""
    asked = ["precision" in run.manifest["identity"] for run in board.runs]
    wilson = (
        "Intervals are 95 % intervals of Wilson, and of Clopper and Pearson where none or all of the images are "
        "classified correctly. "
    )
    sequences = (
        "Intervals are 95 % confidence sequences for sampling without replacement (Waudby-Smith & Ramdas 2020, "
        "arXiv:2006.04347, uniform prior), which hold at any number of images. "
    )
    return sequences if all(asked) else wilson + (f"In runs with a precision: {sequences}" if any(asked) else "")


def _of_fixed_numbers(run: Run) -> str:
    """A sentence that names the intervals of a run which are no confidence sequences; empty if there are none."""
    others = [
        *(["means over corruptions"] if len(run.corruptions) else []),
        *(["median distances"] if "median_distance" in run.results else []),
        *(["single draws"] if "draw_accuracy" in run.results else []),
    ]
    return f" Those of {' and '.join(others)} are for a number of images that was fixed before." if others else ""


def _stop(identity: Mapping[str, Any], reached: bool) -> str:
    width = f"+-{100 * identity['precision']['half_width']:g} points"
    if reached:
        return f"Stopped after {identity['n']:,} images, as all intervals under attack are within {width}."
    return f"After {identity['n']:,} images the precision of {width} is not reached; give a larger --samples."
