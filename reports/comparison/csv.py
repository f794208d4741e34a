"""A comparison's pairs as a CSV file."""

from pathlib import Path

from robustkit.comparison.compare import Comparison

from ..shared.csv import write_frame


def write_comparison(comparison: Comparison, path: Path) -> None:
    """Write the rows of `Comparison.pairs`, and beside it those of `distances` and `corruptions`, if there are any.

    Their files are called NAME-distances.csv and NAME-corruptions.csv.

    Raises:
        UserError: the file cannot be written.
    """
    write_frame(path, comparison.pairs)
    for name, frame in (("distances", comparison.distances), ("corruptions", comparison.corruptions)):
        if len(frame):
            write_frame(path.with_name(f"{path.stem}-{name}{path.suffix}"), frame)
