"""A comparison's pairs as a CSV file."""

from pathlib import Path

from robustkit.comparison.compare import Comparison

from ..shared.csv import write_frame


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the rows of `Comparison.pairs`, and those of `distances` beside it as NAME-distances.csv if there are any.

    Raises:
        UserError: the file cannot be written.
    """
    write_frame(path, comparison.pairs)
    if len(comparison.distances):
        write_frame(path.with_name(f"{path.stem}-distances{path.suffix}"), comparison.distances)
