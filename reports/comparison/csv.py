"""A comparison's pairs as a CSV file."""

from pathlib import Path

from robustkit.comparison.compare import Comparison

from ..shared.csv import write_frame


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the rows of `Comparison.pairs`.

    Raises:
        UserError: the file cannot be written.
    """
    write_frame(path, comparison.pairs)
